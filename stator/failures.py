"""What is kept of an exception: bounded text without local variables, NULs or credentials, and a fingerprint."""

import hashlib
import re
import traceback
from dataclasses import dataclass
from types import TracebackType

from stator.exceptions import Fail

MESSAGE_LENGTH = 1000
TRACEBACK_LENGTH = 8000

# NUL and lone surrogates cannot be stored; the other control characters would forge log and terminal lines.
_UNSTORABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CREDENTIALS = re.compile(
    r"(://[^:/\s@]*:)[^@\s/]+@"
    r"|((?:password|passwd|secret|token|api[_-]?key|authorization)[\"']?\s*[=:]\s*(?:(?:bearer|basic)\s+)?)[^\s,;}]+",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as it is stored. ``fingerprint`` is equal for errors of one type raised at one place.

    ``deliberate``: the handler said by ``Fail`` that the object is not to be attempted again.
    """

    kind: str
    message: str
    traceback: str
    fingerprint: str
    deliberate: bool = False


def describe(error: BaseException) -> Failure:
    """The failure for an exception; never raises, whatever its ``__str__`` does."""
    kind = f"{type(error).__module__}.{type(error).__qualname__}".removeprefix("builtins.")
    frames = _frames(error.__traceback__)
    return Failure(
        kind=bounded(kind, 200),
        message=bounded(text_of(error), MESSAGE_LENGTH),
        traceback=bounded(_chain(error, kind), TRACEBACK_LENGTH),
        fingerprint=hashlib.sha256("\n".join([kind, *frames]).encode(errors="replace")).hexdigest()[:16],
        deliberate=isinstance(error, Fail),
    )


def quarantined(crashes: int) -> Failure:
    """The failure of an object that is left alone because its workers died, or lost it, so many times in a row."""
    message = f"{crashes} leases in a row ran out during an attempt; it is left alone until an operator retries it"
    return Failure("stator.Quarantined", message, "", "quarantined")


def bounded(text: str, length: int) -> str:
    """Storable text of at most ``length`` characters: cleaned, credentials masked, the middle left out."""
    # Cut twice: first so that a message of megabytes costs no more than a short one, and after the masking because
    # credentials that a cut divides are not recognised.
    text = _CREDENTIALS.sub(_mask, _cut(text, 3 * length))
    return _UNSTORABLE.sub("\ufffd", _cut(text, length))


def text_of(told: object) -> str:
    """The text of what a handler raised or gave as a reason; never raises, whatever its ``__str__`` does."""
    try:
        return str(told)
    except BaseException as broken:  # noqa: BLE001 - a user's __str__ may raise anything; the outcome must still be recorded
        return f"<{type(told).__name__}.__str__ raised {type(broken).__name__}>"


def _cut(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    tail = length // 2
    return f"{text[: length - tail - 5]} ... {text[-tail:]}"


def _mask(match: re.Match[str]) -> str:
    return f"{match[1]}***@" if match[1] else f"{match[2]}***"


def _frames(trace: TracebackType | None) -> list[str]:
    return [f"{frame.filename}:{frame.name}" for frame in traceback.extract_tb(trace, limit=-20)]


def _chain(error: BaseException, kind: str) -> str:
    """The traceback and those of up to four causes, innermost cause first; cycles end it."""
    parts: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(parts) < 5:
        seen.add(id(current))
        lines = "".join(traceback.format_tb(current.__traceback__, limit=-20))
        name = kind if current is error else type(current).__qualname__
        parts.append(f"{lines}{name}: {bounded(text_of(current), MESSAGE_LENGTH)}\n")
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\n".join(reversed(parts))
