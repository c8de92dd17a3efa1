"""The spine: what a newcomer reads first is there, in few files and lines."""

import ast
import re
from pathlib import Path

from tests.parsing import tree_of

ROOT = Path(__file__).parents[2]

# What somebody reads in an afternoon.
MOST_FILES, MOST_LINES = 14, 2000


def spine():
    """Return the names to read by file, as the page has them."""
    page = (ROOT / "docs" / "spine.rst").read_text()
    parts = re.split(r"^``(\S+\.py)``\n~+$", page, flags=re.MULTILINE)
    read = (re.search(r"^Read: (.*?)\n\n", part, re.MULTILINE | re.DOTALL) for part in parts[2::2])
    return {path: re.findall(r"``(\S+?)``", found[1]) for path, found in zip(parts[1::2], read, strict=True)}


def lines_of(path, name):
    """Return how many lines a class, a function or a method has."""
    [*outer, last] = name.split(".")
    body = tree_of(ROOT / path).body
    for each in outer:
        [body] = [node.body for node in body if isinstance(node, ast.ClassDef) and node.name == each]
    defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return sum(node.end_lineno - node.lineno + 1 for node in body if isinstance(node, defined) and node.name == last)


def test_what_is_read_first_is_there_and_is_little():
    lines = {f"{path}: {name}": lines_of(path, name) for path, names in spine().items() for name in names}
    assert [each for each, count in lines.items() if not count] == []
    assert len(spine()) <= MOST_FILES
    assert sum(lines.values()) <= MOST_LINES
