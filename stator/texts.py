"""Numbers as text, and text from outside made safe to store and show: bounded, masked, escaped."""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Any, TypeAlias

# What callers give to be stored as JSON; read-only, so that a dict[str, int] or a TypedDict is one.
JsonInput: TypeAlias = str | float | Mapping[str, object] | Sequence[object] | None

# What was stored as JSON. It is Any, and so are the values of an object: who stored it knows what it has, and would
# have to cast each value of a union.
Json: TypeAlias = Any
JsonObject: TypeAlias = dict[str, Json]

WORKER_NAME = re.compile("[^\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]{1,100}")
WORKER_NAME_RULE = "a text of 1 to 100 printable characters"

# Rows are counted up to this number.
COUNTED = 10_000

# Moments on pages, in the shell and in logs, with the offset of their zone. In templates it is "Y-m-d H:i:s O".
MOMENT = "%Y-%m-%d %H:%M:%S %z"

# Characters that a database cannot store (NUL, lone surrogates), or that would forge lines of a log or terminal.
_UNSTORABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# Characters that reorder their neighbours, and invisible ones. Joiners of letters (U+200C, U+200D) are allowed: Persian
# names and emoji need them.
_REORDERING = "\u202a-\u202e\u2066-\u206f"
_INVISIBLE = "\u180e\u2060-\u2065\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"
_MARKS = "\u061c\u200b\u200e\u200f\u2028\u2029"
_CONTROL = re.compile(f"[\x00-\x1f\x7f-\x9f{_REORDERING}{_INVISIBLE}{_MARKS}\ud800-\udfff]")
# Line breaks are not among them, as a page may have them; nor are the marks that some of Django's translations contain.
CONTROL_OF_PAGES = f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{_REORDERING}{_INVISIBLE}]"

# A constant, because a union of types written inside a loop would be built at each use.
_NESTING = (dict, list, tuple)
# Making one takes longer than most values.
_JSON = json.JSONEncoder(allow_nan=False, ensure_ascii=False)

# A NUL in JSON: an odd number of backslashes before "u0000". If the number is even, each backslash is escaped text.
_NUL_IN_JSON = re.compile(r"(?<!\\)(?:\\\\)*+\\u0000")

# Suffixes of names of credentials, in any case, with hyphens or underscores; each contains one of the hints.
_NAMES = (
    "password", "passwd", "passphrase", "pwd", "secret", "secret_key", "secretkey", "access_key", "accesskey",
    "api_key", "apikey", "private_key", "privatekey", "signing_key", "encryption_key", "token", "authorization",
    "credential", "credentials", "session_id", "sessionid", "session_key",
)  # fmt: skip
_HINTS = ("passw", "passphrase", "pwd", "secret", "key", "token", "authorization", "credential", "session")
_NAMED = re.compile(r"(?<![\w-])([\w-]++)\\?[\"']?\s*+[=:]+>?\s*+")
# A list, a quoted text, or everything up to the next space or punctuation that ends a value.
_VALUE = re.compile(
    r"(?:(?:bearer|basic|digest|token|negotiate)\s+)?+"
    r"(?:\[[^\]\n]*\]?|\\?\"(?:[^\"\\\n]|\\.)*\"?|\\?'(?:[^'\\\n]|\\.)*'?|[^\s,;}]+)",
    re.IGNORECASE,
)
_OF_ADDRESS = re.compile(r"(://[^:/\s@]*:)[^\s/]+@")
# "Bearer" without the name of a header before it. Words that follow it in a sentence are left alone.
_BEARER = re.compile(
    r"\b((?:Bearer|BEARER)\s+)(?!(?:a|an|and|auth\w*|credentials?|error|for|header|in|is|not|of|or|realm|required|scheme"
    r"|scope|the|tokens?|was|with)\b)[\w.~+/=-]+"
    r"|\b(bearer\s+)(?=[\w.~+/-]*[A-Z0-9])[\w.~+/=-]+"
)
_SIGNED = re.compile(r"\b(eyJ)[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?")
# The prefix names the owner of the token and is not secret.
_OURS = re.compile(r"\b(tk_[0-9a-f]{12}_)[\w-]+")
_KEY = re.compile(r"(-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----).*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_END_OF_KEY = re.compile(r"-----END [A-Z0-9 ]*PRIVATE KEY-----")


def either(names: Sequence[str]) -> str:
    """Return names as alternatives: ``paid, sent or failed``."""
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def count_text(count: int, cut: bool = False) -> str:
    """Return a count as text: ``10,000+`` if the count ended at the limit."""
    return f"{min(count, COUNTED):,}+" if cut or count > COUNTED else f"{count:,}"


def listed(names: Iterable[object], most: int = 5) -> str:
    """Return the first names for a sentence, and how many more there are."""
    shown = [*map(str, names)]
    return ", ".join(shown[:most]) + (f" and {len(shown) - most:,} more" if len(shown) > most else "")


def nearest(name: str, known: Iterable[str], otherwise: str = "", *, noun: str = "options") -> str:
    """Return the question whether the nearest known name is meant; ``otherwise``, or all names, if none is near."""
    names = sorted(known)
    for close in get_close_matches(name, names, 1):
        return f"did you mean {close!r}?"
    return otherwise or f"{noun} are {', '.join(names)}"


def bounded(text: str, length: int) -> str:
    """Return storable text of at most ``length`` characters: cleaned, credentials masked, the middle cut out."""
    # Cut twice: first, roughly, so that a message of megabytes is masked as fast as a short one; then to the length,
    # because masking does not recognise a credential that was cut in two.
    return _UNSTORABLE.sub("\ufffd", _cut(masked(_cut(text, 3 * length)), length))


def has_nul(json_text: str) -> bool:
    r"""Return whether a text or a name in JSON contains a NUL; a backslash before ``u0000`` in a text is none."""
    # The fast search first: it settles nearly every text.
    return "\\u0000" in json_text and _NUL_IN_JSON.search(json_text) is not None


def text_problem(text: str) -> str:
    """Return what is wrong with a text that databases cannot store, as words after its name; empty if they can."""
    if "\0" in text:
        return "has a NUL character, which databases cannot store"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "has half of a surrogate pair, which is not a character"
    return ""


def json_problem(value: object, deepest: int) -> str:
    """Return what is wrong with a value that not every database can store as JSON; empty if they can."""
    level: list[object] = [value]
    for left in range(deepest, -1, -1):
        below: list[object] = []
        for item in level:
            if isinstance(item, str) and (problem := text_problem(item)):
                return f"a text {problem}"
            if isinstance(item, float) and not isfinite(item):
                return "a number is too large, NaN or Infinity"
            if isinstance(item, dict | list) and not left:
                return f"it is nested deeper than {deepest} levels"
            if isinstance(item, dict):
                below += [*item.keys(), *item.values()]
            elif isinstance(item, list):
                below += item
        level = below
    return ""


def json_text(what: str, value: object, limit: int, depth: int, encoder: json.JSONEncoder = _JSON) -> str:
    """Return a value as JSON text; raise ``ValueError`` if it cannot be stored, or is too large or too deep.

    ``limit``: the most bytes. ``depth``: the most levels. ``encoder``: without escapes of characters.
    """
    if isinstance(value, _NESTING) and not _is_flat(value, depth):
        raise ValueError(f"{what} is nested deeper than {depth} levels")
    try:
        text = encoder.encode(value)
        size = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{what} has half of a surrogate pair, which is not a character") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} cannot be stored as JSON: {' '.join(str(error).split())}") from None
    if has_nul(text):
        raise ValueError(f"{what} has a NUL character, which databases cannot store")
    if size > limit:
        raise ValueError(f"{what} has {size:,} bytes as JSON; the most is {limit:,}")
    return text


def _is_flat(value: Collection[object], depth: int) -> bool:
    """Return whether a value is nested at most ``depth`` levels; a value that contains itself is not."""
    level = [value]
    for _ in range(depth):
        level = [
            item
            for parent in level
            for item in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(item, _NESTING)
        ]
        if not level:
            return True
    return not any(level)


def text_of(value: object) -> str:
    """Return the text of an error or reason of a handler; never raise, whatever its ``__str__`` does."""
    try:
        return str(value)
    except BaseException as broken:  # noqa: BLE001 - a user's __str__ may raise anything; the outcome must still be recorded
        return f"<{type(value).__name__}.__str__ raised {type(broken).__name__}>"


def one_line(error: BaseException) -> str:
    """Return a database error's message as one short line."""
    return bounded(" ".join(text_of(error).split()), 300)


def escape(text: str) -> str:
    r"""Return the text as one line, with characters that forge lines, colours or an order as ``\x1b`` or ``\u202e``."""
    return _CONTROL.sub(spelled_out, text)


def spelled_out(match: re.Match[str]) -> str:
    """Return the escaped form of the characters of a match."""
    return match[0].encode("unicode_escape").decode()


def masked(text: str) -> str:
    """Return the text with ``***`` for each credential that follows a telling name or has a known form."""
    if "PRIVATE KEY-----" in text:
        text = _without_keys(text)
    if "://" in text:
        text = _OF_ADDRESS.sub(r"\1***@", text)
    lower = text.lower()
    if any(hint in lower for hint in _HINTS):
        text = _without_named(text)
    if "bearer" in lower:
        text = _BEARER.sub(lambda match: f"{match[1] or match[2]}***", text)
    if "eyJ" in text:
        text = _SIGNED.sub(r"\1***", text)
    return _OURS.sub(r"\1***", text) if "tk_" in text else text


def _without_named(text: str) -> str:
    parts, at = [], 0
    for name in _NAMED.finditer(text):
        # Names inside a masked value are gone with it.
        if name.start() < at or not name[1].lower().replace("-", "_").endswith(_NAMES):
            continue
        if value := _VALUE.match(text, name.end()):
            parts += [text[at : name.end()], "***"]
            at = value.end()
    return "".join([*parts, text[at:]])


def _without_keys(text: str) -> str:
    text = _KEY.sub(r"\1 ***", text)
    # A key whose beginning was cut off.
    while end := _END_OF_KEY.search(text):
        before, cut, _ = text[: end.start()].rpartition(" ... ")
        text = f"{before}{cut}***{text[end.end() :]}"
    return text


def _cut(text: str, length: int) -> str:
    if len(text) <= length:
        return text
    tail = length // 2
    return f"{text[: length - tail - 5]} ... {text[-tail:]}"
