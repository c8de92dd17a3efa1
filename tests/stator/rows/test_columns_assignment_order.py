"""The changes of the framework's columns mean the same on a database that assigns them one after the other."""

import pytest
from django.db.models import F, Q

from stator.db.interface import new_token
from stator.rows import columns
from tests.testapp.basic import StepGraph

CHANGES = {
    "entering": columns.entering(StepGraph.slow),
    "claiming": columns.claiming(new_token("0" * 12), columns.after(60)),
    "claiming_due": columns.claiming_due(new_token("0" * 12), columns.after(60)),
    "staying": columns.staying(columns.after(5), F("state_failures") + 1),
    "releasing": columns.releasing(),
    "releasing later": columns.releasing(5),
    "reaping": columns.reaping(3),
    "reaping, some spared": columns.reaping(3, Q(state="slow")),
    "parking": columns.parking(),
    "postponing": columns.postponing(),
    "reopening": columns.reopening(),
    "retrying": columns.retrying(),
    "unlocking": columns.unlocking(),
}


def read_by(part: object) -> set[str]:
    """The columns that an expression reads."""
    if isinstance(part, F):
        return {part.name}
    if isinstance(part, Q):
        inside = [child[0] if isinstance(child, tuple) else child for child in part.children]
        return {each.partition("__")[0] if isinstance(each, str) else name for each in inside for name in read_of(each)}
    if hasattr(part, "condition"):
        return read_by(part.condition) | read_by(part.result)
    sources = part.get_source_expressions() if hasattr(part, "get_source_expressions") else []
    return set().union(*map(read_by, sources)) if sources else set()


def read_of(part: object) -> set[str]:
    return {part} if isinstance(part, str) else read_by(part)


@pytest.mark.parametrize("name", CHANGES)
def test_no_expression_reads_a_column_that_was_assigned_before_it(name):
    """MySQL and MariaDB assign from left to right."""
    assigned = set()
    for column, value in CHANGES[name].items():
        assert not read_by(value) & assigned, f"{column} reads {read_by(value) & assigned}"
        assigned.add(column)
