"""Text from files that anybody may have written, made safe for a column or a terminal."""


def storable(text: str, limit: int) -> str:
    """The text in at most `limit` characters, with nothing that a database refuses."""
    text = text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= limit else text[: limit - 3] + "..."


def printable(text: str, encoding: str | None = "utf-8") -> str:
    """The text on one line, without control characters, in what the stream can show."""
    plain = "".join(character if character.isprintable() else _escaped(character) for character in text)
    return plain.encode(encoding or "ascii", "backslashreplace").decode(encoding or "ascii")


def nameable(path: str) -> bool:
    """Whether a path is made of characters: names of other bytes have no place in a text column."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
