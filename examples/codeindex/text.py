"""Text from untrusted files, made safe for a column or a terminal."""


def storable(text: str, limit: int) -> str:
    """Return the text in at most `limit` characters, without characters that databases refuse."""
    text = text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= limit else text[: limit - 3] + "..."


def printable(text: str, encoding: str | None = "utf-8") -> str:
    """Return the text as one line without control characters, in characters that the encoding has."""
    plain = "".join(character if character.isprintable() else _escaped(character) for character in text)
    return plain.encode(encoding or "ascii", "backslashreplace").decode(encoding or "ascii")


def nameable(path: str) -> bool:
    """Return whether a path is valid UTF-8, and so fits into a text column."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
