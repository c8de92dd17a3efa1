"""Rates of actions, and the keys under which their starts are counted. Needs no models."""

import hashlib
import re
from dataclasses import dataclass

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


def key_text(*parts: object) -> str:
    """Return one key for several values; a text that is too long for the column ends in a hash."""
    text = ":".join(str(part) for part in parts).replace("\0", "")
    if len(text) <= KEY_LENGTH:
        return text
    return f"{text[: KEY_LENGTH - 33]}:{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:32]}"
