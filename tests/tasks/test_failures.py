"""Errors that end attempts, and errors of other processes under their own names."""

from stator.exceptions import Fail
from stator.graph.tracebacks import RemoteTraceback
from tasks.failures import LINE, NoHandler, final, last_line, remote


def test_final_error_keeps_the_original_as_its_cause_with_its_traceback():
    try:
        raise NoHandler("no action 'resize'")
    except NoHandler as error:
        ended = final(error)
        original, traceback = error, error.__traceback__
    assert isinstance(ended, Fail)
    assert (ended.__cause__, ended.__traceback__, str(ended)) == (original, traceback, "")


def test_error_of_another_process_has_its_type_and_its_traceback():
    told = RemoteTraceback("Traceback of the process\nthere.Broken: no")
    error = remote("there", "Outer.Broken", "no", told)
    assert (type(error).__module__, type(error).__qualname__, str(error)) == ("there", "Outer.Broken", "no")
    assert error.__cause__ is told
    assert not isinstance(error, Fail)
    assert isinstance(remote("there", "Broken", "no", told, is_final=True), Fail)


def test_last_line_of_a_traceback_is_the_error_cut_to_a_length():
    assert last_line("Traceback\n  File\nValueError: no\n") == "ValueError: no"
    assert last_line("x" * (LINE + 1)) == "x" * LINE
    assert last_line(" \n") == ""
