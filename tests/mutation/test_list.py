"""What ``bin/mutants`` answers, and what faults it makes."""

import pytest

from tests.mutation.__main__ import main
from tests.mutation.faults import TESTS, faults_of


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["-k", "no such fault"], "no fault has 'no such fault' in its description"),
        (["--jobs", "none"], "none is not a number of processes from 1 to 64; use for instance --jobs 2"),
        (["--speed"], "unrecognized arguments: --speed; see bin/mutants --help"),
    ],
)
def test_bad_input_gets_one_line(arguments, told, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_sample_is_the_same_with_the_same_seed(capsys):
    assert main(["-k", "leases", "--list", "--sample", "5"]) == 0
    first = capsys.readouterr().out
    assert main(["-k", "leases", "--list", "--sample", "5"]) == 0
    assert first == capsys.readouterr().out
    assert first.count("stator/db/leases.py:") == 5


SOURCE = """
def late(rows, now, limit=1):
    if now > limit and rows:
        tell(rows)
    return rows.filter(held=True, until__lt=now).update(**{"held": False, "token": None})
STATEMENT = "SELECT 1 WHERE a IS NULL"
"""


def test_each_kind_of_fault_is_made(tmp_path, monkeypatch):
    monkeypatch.setitem(TESTS, "late.py", "none")
    (tmp_path / "late.py").write_text(SOURCE)
    changed = {fault.in_source(SOURCE.encode()).decode() for fault in faults_of("late.py", tmp_path)}
    for old, new in [
        ("if now > limit and rows", "if (not (now > limit and rows))"), ("now > limit", "now >= limit"),
        ("now > limit and rows", "(rows)"), ("tell(rows)", "pass"), ("limit=1", "limit=2"),
        ("held=True, until__lt=now", "until__lt=now"), ("held=True", "held=False"), ("IS NULL", "IS NOT NULL"),
        ('{"held": False, "token": None}', "{'token': None}"),
    ]:  # fmt: skip
        assert SOURCE.replace(old, new) in changed
