"""The summary of a worker that has ended."""

from dataclasses import dataclass, field


@dataclass
class Summary:
    """The results of a worker: attempts per model, moves per ``(model, state)``, errors and refused writes.

    ``forced``: it was asked twice to stop.
    ``unfinished``: attempts that did not end in time and were given up.
    ``ended``: the reason, ``"idle"``, ``"time over"``, ``"stopped"``, ``"orphaned"`` (its supervisor is gone),
    ``"failed"`` or ``"forced"``; empty while it works.
    """

    handled: dict[str, int] = field(default_factory=dict)
    moved: dict[tuple[str, str], int] = field(default_factory=dict)
    failed: int = 0
    lost: int = 0
    forced: bool = False
    unfinished: int = 0
    ended: str = ""
