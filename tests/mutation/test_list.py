"""What ``bin/mutants`` answers; whether each mutant still applies, it says itself when it runs."""

import pytest

from tests.mutation.__main__ import main


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
