"""The messages between a worker and an isolated process: one line of JSON each."""

from typing import TypedDict


class Request(TypedDict):
    """The row to attempt: its model, the token of its claim, where it is, and the worker that claimed it."""

    model: str
    token: str
    using: str
    schema: str
    worker: str


class Answer(TypedDict, total=False):
    """What a process says: that it is ready, how long a lease was extended, or how the attempt ended.

    ``ended``: "recorded", "lost" or "not begun". ``moved``: the states that the object entered. ``failed`` and
    ``lost``: the numbers of errors and of lost leases.
    """

    ready: bool
    extended: float
    ended: str
    moved: list[str]
    failed: int
    lost: int
