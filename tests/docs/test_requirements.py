"""docs/requirements.rst names every line once, and only tests and files that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "requirements.rst").read_text()
# The cells of each line after its number.
ROWS = {
    line: [cell.strip() for cell in cells.split("\n     - ")[1:]]
    for line, cells in re.findall(r"^   \* - (R\d\.\d+)((?:\n     .+)+)", PAGE, re.MULTILINE)
}
LINES = {"R1": 12, "R2": 14, "R3": 10, "R4": 6, "R5": 22}


def test_every_line_stands_there_once():
    named = re.findall(r"^   \* - (R\d\.\d+)$", PAGE, re.MULTILINE)
    assert sorted(named) == sorted(
        f"{group}.{number}" for group, count in LINES.items() for number in range(1, count + 1)
    )


def test_every_test_exists():
    named = {name.partition("::")[::2] for name in re.findall(r"``([\w/]+\.py::\w+)``", PAGE)}
    assert {(path, test) for path, test in named if f"def {test}(" not in (ROOT / "tests" / path).read_text()} == set()


def test_every_file_exists():
    named = set(re.findall(r"\b(?:stator|tasks)/[\w/]+\.py(?!::)", PAGE))
    assert {path for path in named if not ((ROOT / path).exists() or (ROOT / "tests" / path).exists())} == set()


def test_every_name_is_in_its_file():
    for path, names in set(re.findall(r"\b((?:stator|tasks)/[\w/]+\.py) \(([\w, ]+)\)", PAGE)):
        text = (ROOT / path).read_text()
        assert [name for name in names.split(", ") if not re.search(rf"\b{name}\b", text, re.IGNORECASE)] == [], path


def test_each_line_says_its_promise_its_code_and_its_tests():
    for line, (promise, code, tests) in ROWS.items():
        assert promise.endswith("."), f"{line} is no sentence"
        assert re.search(r"\w/\w", code) or code.startswith("rows are the queue"), line
        assert "::" in tests, line
