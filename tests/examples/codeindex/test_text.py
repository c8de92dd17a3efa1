"""Text that anybody may have written, in columns and on terminals."""

import pytest

from examples.codeindex.text import nameable, printable, storable


@pytest.mark.parametrize(
    ("text", "stored"),
    [("plain", "plain"), ("straße", "straße"), ("a\0b", "a\\x00b"), ("a\udcffb", "a\\udcffb"), ("", "")],
)
def test_what_a_database_refuses_is_escaped(text: str, stored: str) -> None:
    assert storable(text, 100) == stored


def test_long_text_is_cut_to_the_limit() -> None:
    assert storable("x" * 10, 10) == "x" * 10
    assert storable("x" * 11, 10) == "xxxxxxx..."
    assert len(storable("\0" * 100, 20)) == 20


@pytest.mark.parametrize(
    ("text", "encoding", "shown"),
    [
        ("a b", "utf-8", "a b"),
        ("two\nlines", "utf-8", "two\\nlines"),
        ("\x1b[31mred", "utf-8", "\\x1b[31mred"),
        ("\u202eback", "utf-8", "\\u202eback"),
        ("\udcff", "utf-8", "\\udcff"),
        ("straße", "utf-8", "straße"),
        ("straße", "ascii", "stra\\xdfe"),
        ("straße", None, "stra\\xdfe"),
    ],
)
def test_a_terminal_gets_one_line_without_control_characters(text: str, encoding: str | None, shown: str) -> None:
    assert printable(text, encoding) == shown


def test_a_path_of_bytes_that_are_no_characters_is_not_nameable() -> None:
    assert nameable("straße/a.py")
    assert not nameable("\udcff.py")
