"""Rates of actions, and the keys under which their starts are counted. Needs no models."""

import hashlib
import re
from dataclasses import dataclass
from typing import ClassVar

KEY_LENGTH = 200
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Frequency:
    """A rate: at most ``count`` starts in ``period`` seconds."""

    count: int
    period: int


def frequency(text: str) -> Frequency:
    """Parse a rate such as ``10/s``, ``100/m``, ``5/h``, ``1/d`` or ``3/10s``; raise ``ValueError`` for other texts."""
    match = re.fullmatch(r"([1-9]\d{0,8})/([1-9]\d{0,4})?([smhd])", text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"rate={text!r} must be a number of starts and a time, such as 10/s, 100/m or 3/10s")
    return Frequency(int(match[1]), int(match[2] or 1) * UNITS[match[3]])


@dataclass(frozen=True, slots=True)
class UsedLimit:
    """A limit that is used up: the ``rate`` or the ``concurrency`` of the tasks of one key.

    Its text is the reason to wait that workers record; :meth:`read` returns the limit again. It ends in ``END``.
    """

    END: ClassVar[str] = ", its limit"

    key: str
    rate: str = ""
    concurrency: int = 0

    def __str__(self) -> str:
        # Without the names that the key lacks: of the queue, and of a value.
        name = self.key.strip(":")
        if self.rate:
            return f"{name} has started {self.rate}{self.END}"
        return f"{self.concurrency} of {name} are running{self.END}"

    @classmethod
    def read(cls, text: str) -> "UsedLimit | None":
        """Return the limit that a recorded reason is about; None if it is about something else."""
        if match := re.fullmatch(r"(?s)(.*) has started (\d+/\w+), its limit", text):
            return cls(match[1].strip(":"), rate=match[2])
        if match := re.fullmatch(r"(?s)(\d+) of (.*) are running, its limit", text):
            return cls(match[2].strip(":"), concurrency=int(match[1]))
        return None

    @property
    def option(self) -> str:
        """The name of the option of the action that sets it."""
        return "rate" if self.rate else "concurrency"

    @property
    def per_second(self) -> float | None:
        """The most starts a second; None if only their number at once is limited."""
        if not self.rate:
            return None
        allowed = frequency(self.rate)
        return allowed.count / allowed.period

    def text(self, queue: str, action: str) -> str:
        """Return the limit for people, with the value that has it: ``rate 10/s of 'example.org'``."""
        value = self.key.strip(":").removeprefix(f"{queue}:").removeprefix(action).removeprefix(":")
        return f"{self.option} {self.rate or self.concurrency}{f' of {value!r}' if value else ''}"


def key_text(*parts: object) -> str:
    """Return one key for several values; a text that is too long for the column ends in a hash."""
    text = ":".join(str(part) for part in parts).replace("\0", "")
    if len(text) <= KEY_LENGTH:
        return text
    return f"{text[: KEY_LENGTH - 33]}:{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:32]}"
