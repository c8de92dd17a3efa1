"""Stored tracebacks read as Python prints them, and have a bound."""

import traceback
from types import SimpleNamespace

import pytest

from stator.graph.failures import MESSAGE_LENGTH, TRACEBACK_LENGTH, describe
from stator.models import Report
from stator.testing import attempt
from tests.testapp.operators import Parcel


def caught(function, *args):
    try:
        function(*args)
    except BaseException as error:
        return error.with_traceback(error.__traceback__.tb_next)
    raise AssertionError("nothing was raised")


def fail(message="no"):
    raise ValueError(message)


def fail_for_a_cause():
    try:
        fail("inner")
    except ValueError as error:
        raise KeyError("outer") from error


def fail_meanwhile():
    try:
        fail("inner")
    except ValueError:
        fail("outer")


def fail_instead():
    try:
        fail("inner")
    except ValueError:
        raise KeyError("outer") from None


def fail_with_notes():
    error = ValueError("no")
    error.add_note("row 7 of the file")
    error.add_note("two\nlines")
    raise error


def fail_to_compile():
    compile("x = (1,\ny = 2", "given.py", "exec")


def fail_together():
    errors = [caught(fail_for_a_cause), caught(fail_with_notes), ExceptionGroup("within", [caught(fail_meanwhile)])]
    raise ExceptionGroup("several", errors)


def fail_for_a_group():
    try:
        fail_together()
    except ExceptionGroup as group:
        raise KeyError("outer") from group


def recurse():
    recurse()


@pytest.mark.parametrize(
    "function",
    [
        fail, fail_for_a_cause, fail_meanwhile, fail_instead, fail_with_notes, fail_to_compile, fail_together,
        fail_for_a_group,
    ],
)  # fmt: skip
def test_traceback_reads_as_python_prints_it(function):
    error = caught(function)
    assert describe(error).traceback == "".join(traceback.format_exception(error))


@pytest.mark.django_db
def test_frames_of_the_framework_are_left_out_and_an_error_that_was_never_raised_has_none():
    assert describe(KeyError("x")).traceback == "KeyError: 'x'\n"
    attempt(Parcel.objects.create(orders="fail"))
    header, first, *_ = Report.objects.get().traceback.splitlines()
    assert header == "Traceback (most recent call last):"
    assert "/tests/testapp/operators.py" in first


def test_fingerprint_is_that_of_the_handler_however_it_was_called():
    ours = compile("def call(function):\n    function()", describe.__code__.co_filename, "exec")
    namespace = {}
    exec(ours, namespace)
    assert describe(caught(namespace["call"], fail)).fingerprint == describe(caught(fail)).fingerprint


def test_only_the_last_frames_are_kept():
    told = describe(caught(recurse)).traceback
    assert told.count("in recurse") <= 20
    assert "[Previous line repeated" in told


def test_very_many_causes_are_left_out_and_that_is_said():
    error = None
    for number in range(5_000):
        error, cause = caught(fail, f"error {number}."), error
        error.__cause__ = cause
    told = describe(error).traceback
    assert told.startswith("(Further causes are left out: 10 errors are stored.)\n\nTraceback")
    assert told.count("Traceback (most recent call last):") == 10
    assert "ValueError: error 4990." in told
    assert told.endswith("ValueError: error 4999.\n")


def test_very_many_members_of_a_group_are_counted():
    told = describe(ExceptionGroup("many", [caught(fail, f"member {number}.") for number in range(1000)])).traceback
    assert told.count("ValueError: member") == 15
    assert "and 985 more exceptions" in told


def test_wide_and_deep_groups_cost_a_bounded_number_of_errors():
    error = caught(fail, "x" * 1_000_000)
    for _ in range(4):
        error = ExceptionGroup("again", [error] * 15)
    assert len(describe(error).traceback) <= TRACEBACK_LENGTH


def test_notes_are_bounded_and_masked():
    error = caught(fail)
    error.__notes__ = ["password=hunter2", "x" * 1_000_000, *map(str, range(1000))]
    told = describe(error).traceback
    assert "password=***\n" in told
    assert len(told) < 3 * MESSAGE_LENGTH


class Mute:
    def __str__(self):
        raise SystemExit(1)


class Guarded(Exception):
    @property
    def __notes__(self):
        raise SystemExit(1)


def test_notes_of_any_kind_do_no_harm():
    error = caught(fail)
    for notes in (7, "text", None, [Mute(), 7]):
        error.__notes__ = notes
        assert "ValueError: no\n" in describe(error).traceback
    # An error that cannot be read is recorded by type and message.
    assert describe(Guarded("no")).traceback == "tests.stator.graph.test_tracebacks.Guarded: no\n"


def test_local_variables_are_not_read():
    class Telltale:
        def __repr__(self):
            raise AssertionError("it was read")

    def handler(canary):
        local = [canary]
        raise ValueError(str(len(local)))

    assert "in handler" in describe(caught(handler, Telltale())).traceback


def test_secret_in_a_line_of_the_source_is_masked():
    def handler():
        SimpleNamespace(password="hunter2", error=fail())

    told = describe(caught(handler)).traceback
    assert "hunter2" not in told
    assert "password=***" in told
