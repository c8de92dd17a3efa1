"""docs/requirements.rst names every line once, and only tests and files that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "requirements.rst").read_text()
LINES = {"R1": 12, "R2": 14, "R3": 10, "R4": 6, "R5": 22}


def test_every_line_stands_there_once():
    named = re.findall(r"^   \* - (R\d\.\d+)$", PAGE, re.MULTILINE)
    assert sorted(named) == sorted(
        f"{group}.{number}" for group, count in LINES.items() for number in range(1, count + 1)
    )


@pytest.mark.parametrize("name", sorted(set(re.findall(r"``([\w/]+\.py::\w+)``", PAGE))))
def test_every_test_exists(name):
    path, _, test = name.partition("::")
    assert f"def {test}(" in (ROOT / "tests" / path).read_text()


@pytest.mark.parametrize("path", sorted(set(re.findall(r"\bstator/[\w/]+\.py(?!::)", PAGE))))
def test_every_file_exists(path):
    assert (ROOT / path).exists() or (ROOT / "tests" / path).exists()
