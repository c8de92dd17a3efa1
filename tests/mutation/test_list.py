"""The list of mutants stays true to the code: without this, one would be left out once its text has changed."""

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.mutation.__main__ import main
from tests.mutation.mutants import MUTANTS

ROOT = Path(__file__).parent.parent.parent
LEAST = 80

by_name = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)


@cache
def text_of(file):
    return (ROOT / file).read_text()


@cache
def names_in(file):
    """The names of the tests in a file, with those of their classes."""
    names = set()
    for node in ast.parse(text_of(file)).body:
        inside = node.body if isinstance(node, ast.ClassDef) else ()
        names |= {f"{node.name}::{each.name}" for each in inside if hasattr(each, "name")}
        names |= {node.name} if hasattr(node, "name") else set()
    return names


def test_there_are_enough_and_each_has_a_name_of_its_own():
    assert len(MUTANTS) >= LEAST
    assert [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1] == []


@by_name
def test_text_occurs_once_and_the_changed_file_compiles(mutant):
    text = text_of(mutant.file)
    assert text.count(mutant.old) == 1
    changed = text.replace(mutant.old, mutant.new)
    assert changed != text
    compile(changed, mutant.file, "exec")


@by_name
def test_its_tests_exist_and_run_on_its_database(mutant):
    assert mutant.tests
    assert mutant.database in ("sqlite", "postgresql")
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert not name or name in names_in(file), test


def test_few_may_survive():
    assert sum(bool(mutant.survives) for mutant in MUTANTS) <= len(MUTANTS) / 20


@pytest.mark.parametrize(
    ("arguments", "database", "told"),
    [
        (["-k", "no such fault"], "", "no mutant has 'no such fault' in its name or file; see bin/mutants --list"),
        (["--jobs", "none"], "", "none is not a number of processes from 1 to 64; use for instance --jobs 2"),
        (["--speed"], "", "unrecognized arguments: --speed; see bin/mutants --help"),
        (["--list"], "oracle", "DB=oracle is no database we test on; use DB=sqlite or DB=postgresql"),
    ],
)
def test_bad_input_gets_one_line(arguments, database, told, monkeypatch, capsys):
    monkeypatch.setenv("DB", database)
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_list_is_narrowed_by_a_word_and_a_database(monkeypatch, capsys):
    monkeypatch.setenv("DB", "postgresql")
    assert main(["-k", "limit", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("the limit has no lock" in line for line in lines)
    assert all("postgresql" in line for line in lines)
