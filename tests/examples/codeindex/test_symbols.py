"""Which definitions are found in a source, and what is said about one that is none."""

import codecs
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from examples.codeindex.symbols import Definition, Unparsable, definitions_in

SOURCE = b'''
"""A module."""
LIMIT: int = 5
WIDTH, HEIGHT = 1, 2
lower = 3

class Shape(Base):
    """What has an area.

    More about it.
    """
    SIDES = 0

    @property
    @cached(SIDES)
    def area(self):
        """Square metres."""
        FACTOR = 2
        def half(): ...
        class Inner:
            def deep(self): ...

    async def draw(self): ...

if LIMIT:
    try:
        def guarded(): ...
    except ImportError:
        async def guarded(): ...

for INDEX in range(3):
    with open("x") as FILE:
        match INDEX:
            case 1:
                MATCHED = True
'''

EXPECTED = [
    ("constant", "LIMIT", 3),
    ("constant", "WIDTH", 4),
    ("constant", "HEIGHT", 4),
    ("class", "Shape", 7),
    ("constant", "Shape.SIDES", 12),
    ("method", "Shape.area", 16),
    ("function", "Shape.area.<locals>.half", 19),
    ("class", "Shape.area.<locals>.Inner", 20),
    ("method", "Shape.area.<locals>.Inner.deep", 21),
    ("async method", "Shape.draw", 23),
    ("function", "guarded", 27),
    ("async function", "guarded", 29),
    ("constant", "MATCHED", 35),
]


def names(source: bytes) -> list[str]:
    return [definition.qualified_name for definition in definitions_in(source)]


def reason(source: bytes) -> str:
    with pytest.raises(Unparsable) as caught:
        definitions_in(source)
    return str(caught.value)


def test_finds_every_kind_of_definition_from_top_to_bottom() -> None:
    found = [(found.kind, found.qualified_name, found.line) for found in definitions_in(SOURCE)]
    assert found == EXPECTED


def test_summary_is_the_first_line_of_the_docstring() -> None:
    summaries = {found.name: found.summary for found in definitions_in(SOURCE)}
    assert summaries["Shape"] == "What has an area."
    assert summaries["area"] == "Square metres."
    assert summaries["draw"] == summaries["LIMIT"] == ""


def test_name_is_the_last_part_of_the_qualified_name() -> None:
    assert Definition("function", "Outer.method.<locals>.inner", 1).name == "inner"


def test_an_empty_source_defines_nothing() -> None:
    assert definitions_in(b"") == []


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_lines_may_end_in_any_way(newline: bytes) -> None:
    assert [found.line for found in definitions_in(newline.join([b"A = 1", b"B = 2"]))] == [1, 2]


@pytest.mark.parametrize(
    "source",
    [
        b"# coding: latin-1\ndef stra\xdfe(): ...",
        b"#!/usr/bin/python\n# -*- coding: iso-8859-15 -*-\ndef stra\xdfe(): ...",
        codecs.BOM_UTF8 + "def straße(): ...".encode(),
        "def straße(): ...".encode(),
    ],
)
def test_the_declared_encoding_is_used(source: bytes) -> None:
    assert names(source) == ["straße"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b"def f(:\n  pass", "line 1: "),
        (b"x = 1\n  y = 2", "line 2: unexpected indent"),
        (b"print 'hello'", "line 1: Missing parentheses"),
        (b"x = 1\0", "null byte"),
        (b"x = '\xff'", "Non-UTF-8 code" if sys.version_info >= (3, 14) else "codec can't decode byte 0xff"),
        (b"\xff\xfex\0", ""),
        (b"# coding: no-such-codec\n", "no-such-codec"),
        (b"# coding: hex\nx = 1\n", "not a text encoding"),
        (b"(" * 10_000, "too many nested parentheses"),
        (b"not " * 100_000 + b"x", "nested too deeply to be parsed"),
        (b"1" + b"+1" * 100_000, "nested too deeply to be parsed"),
    ],
)
def test_what_is_not_python_says_why(source: bytes, expected: str) -> None:
    assert expected in reason(source)


def test_a_long_chain_of_branches_is_no_problem_of_depth() -> None:
    chain = b"if a: pass\n" + b"".join(b"elif b: CHOICE_%d = 1\n" % number for number in range(900))
    assert len(names(chain)) == 900


def test_warnings_about_the_source_are_kept_quiet_also_in_threads() -> None:
    source = rb"PATTERN = '\d'; SAME = PATTERN is 'x'"
    with ThreadPoolExecutor(8) as pool:
        assert all(found == ["PATTERN", "SAME"] for found in pool.map(names, [source] * 200))
