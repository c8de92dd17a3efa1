"""Shapes of statements that the planner of Citus refuses, for tests of what is sent to Citus on an ordinary PostgreSQL.

The rules are those of its router planner for tables in a distributed schema. ``tests/citus/test_shapes.py`` asks Citus.
"""

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.errors import FeatureNotSupported

TIME = r"(?:STATEMENT_TIMESTAMP|TRANSACTION_TIMESTAMP|NOW)\(\)"
OPERAND = r'(?:"?\w+"?\.)?(?:"\w+"|[A-Z_]\w*)'
SPAN = rf"(?:{OPERAND} \* INTERVAL|%S::INTERVAL|'[^']*'::INTERVAL|INTERVAL '[^']*')"

# In the whole of a statement, in upper case. The first two are not refused by themselves: Citus runs the parts of such
# a statement one after the other, and then refuses ``ctid`` and recursion.
ANYWHERE = {
    "INSERT in WITH": re.compile(r"\bAS (?:MATERIALIZED )?\(\s*INSERT\b"),
    "a volatile function in WITH": re.compile(r"\bWITH\b.*\b(?:RANDOM|CLOCK_TIMESTAMP|GEN_RANDOM_UUID)\(", re.DOTALL),
    "a subquery in VALUES": re.compile(r"\bVALUES \([^;]*\(SELECT\b(?=[^;]*ON CONFLICT|[^;]*$)"),
    "a column with a constraint": re.compile(r"\bADD COLUMN [^;]*\b(?:CHECK|UNIQUE|REFERENCES|PRIMARY KEY)\b"),
    "a trigger": re.compile(r"\bCREATE (?:OR REPLACE )?(?:CONSTRAINT )?TRIGGER\b"),
}
# In an UPDATE or DELETE without its subqueries, into which the planner does not look.
CHANGING = {
    "the time in CASE": re.compile(rf"\bCASE\b(?:(?!\bEND\b).)*?{TIME}", re.DOTALL),
    "the time in COALESCE": re.compile(rf"\bCOALESCE\((?:[^()]|\([^()]*\))*?{TIME}"),
    "a moment and a span of a column": re.compile(rf"{TIME} [+-] \(?{OPERAND} \* INTERVAL|{OPERAND} [+-] \(?{SPAN}"),
    "a volatile function": re.compile(r"\b(?:RANDOM|CLOCK_TIMESTAMP|GEN_RANDOM_UUID)\("),
    "the time in RETURNING": re.compile(rf"\bRETURNING [^;]*{TIME}"),
}
CHANGE = re.compile(r"(?<!FOR )(?<!KEY )(?<!DO )\b(?:UPDATE|DELETE FROM)\s")
SELECT = re.compile(r"\(\s*SELECT\b")

# What was refused in the test that is running.
found: list[str] = []


def refused_in(statement: str) -> list[str]:
    """Return what Citus would refuse in a statement."""
    text = statement.upper()
    parts = [_without_subqueries(text[found.start() : _end_of(text, found.start())]) for found in CHANGE.finditer(text)]
    changing = [name for name, shape in CHANGING.items() if any(shape.search(part) for part in parts)]
    return [name for name, shape in ANYWHERE.items() if shape.search(text)] + changing


def _without_subqueries(text: str) -> str:
    kept, at = "", 0
    while found := SELECT.search(text, at):
        end = _end_of(text, found.start())
        kept += text[at : found.start()] + "(?)"
        at = end
    return kept + text[at:]


def _end_of(text: str, start: int) -> int:
    """Return the end of the parenthesis that begins here, else of the text up to one that closes around it."""
    depth, least = 0, int(text[start] == "(")
    for at in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        if depth < least and text[at] == ")":
            return at + least
    return len(text)


def install() -> None:
    """Refuse, in every thread of this process, what Citus would refuse; note it for :func:`judged`."""
    execute: Any = psycopg.Cursor.execute

    def checked(cursor: Any, query: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(query, str) and (refused := refused_in(query)):
            found.append(f"{', '.join(refused)}: {query}")
            raise FeatureNotSupported(f"Citus refuses {', '.join(refused)}")
        return execute(cursor, query, *arguments, **named)

    psycopg.Cursor.execute = checked  # type: ignore[method-assign, assignment]


@pytest.fixture(autouse=True)
def judged() -> Iterator[None]:
    """Fail a test in which Citus would have refused a statement, even if the program caught the error."""
    found.clear()
    yield
    assert not found, "\n".join(found)
