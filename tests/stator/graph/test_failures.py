"""Any error of a handler can be recorded: bounded, storable, and without secrets. Fault F19."""

import time
from traceback import format_exception

import pytest

from stator.graph.failures import MESSAGE_LENGTH, TRACEBACK_LENGTH, bounded, describe


def caught(function, *args):
    try:
        function(*args)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def fail(message="no"):
    raise ValueError(message)


def fail_elsewhere():
    raise ValueError("no")


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("not even a text")


class Deadly(Exception):
    def __str__(self):
        raise SystemExit(1)


class Odd(Exception):
    def __str__(self):
        return 7  # noqa: PLE0307 - on purpose


def test_failure_holds_type_message_and_place():
    failure = describe(caught(fail))
    assert (failure.kind, failure.message) == ("ValueError", "no")
    assert "test_failures.py" in failure.traceback
    assert "in fail" in failure.traceback
    assert failure.traceback.rstrip().endswith("ValueError: no")
    # A type outside builtins is named with its module.
    assert describe(caught(lambda: (_ for _ in ()).throw(Mute()))).kind == "tests.stator.graph.test_failures.Mute"


def test_message_of_ten_megabytes_is_shortened_at_both_ends_and_quickly():
    started = time.process_time()
    failure = describe(caught(fail, "head" + "x" * 10_000_000 + "tail"))
    assert time.process_time() - started < 10
    assert len(failure.message) <= MESSAGE_LENGTH
    assert failure.message.startswith("head")
    assert failure.message.endswith("tail")
    assert len(failure.traceback) <= TRACEBACK_LENGTH


def test_characters_that_cannot_be_stored_or_would_forge_are_replaced():
    for text in ("\x00", "\ud800", "\x1b[31m", "\r\x08", "\u202e", "\u2066", "\x85", "a\x00b\udfffc"):
        failure = describe(caught(fail, text))
        for kept in (failure.message, failure.traceback):
            kept.encode()
            assert not set(text) & set(kept) - set("abc[31m")
        assert "\ufffd" in failure.message


def test_text_that_cannot_be_had_does_not_fail_and_the_module_of_a_type_is_cleaned_too():
    for kind, raised in {Mute: "RuntimeError", Deadly: "SystemExit", Odd: "TypeError"}.items():
        assert describe(kind()).message == f"<{kind.__name__}.__str__ raised {raised}>"
    strange = type("Strange", (Exception,), {"__module__": "bad\x00\ud800"})
    describe(strange()).kind.encode()
    assert "\x00" not in describe(strange()).kind


def test_cycle_of_causes_ends():
    first, second = caught(fail, "first"), caught(fail, "second")
    first.__cause__, second.__cause__ = second, first
    trace = describe(first).traceback
    assert trace.count("ValueError: first") == 1
    assert trace.count("ValueError: second") == 1


def test_credentials_are_masked_in_message_and_traceback():
    failure = describe(caught(fail, "cannot reach postgresql://shop:hunter2@db.example/shop"))
    assert "hunter2" not in failure.message + failure.traceback
    assert "***" in failure.message


def test_credentials_are_masked_where_the_text_is_cut():
    for padding in range(MESSAGE_LENGTH // 2 - 40, MESSAGE_LENGTH // 2 + 40):
        url, long, short = "postgresql://shop:hunter2hunter2@db/x", "." * 10_000, "." * padding
        assert "hunter2" not in bounded(f"{short}{url}{long}", MESSAGE_LENGTH)
        assert "hunter2" not in bounded(f"{long}{url}{short}", MESSAGE_LENGTH)


def test_same_place_has_one_fingerprint_whatever_the_message_and_another_place_or_type_another():
    assert describe(caught(fail, "row 1")).fingerprint == describe(caught(fail, "row 2")).fingerprint
    prints = {describe(caught(place)).fingerprint for place in (fail, fail_elsewhere, lambda: 1 / 0)}
    assert len(prints) == 3


def logged(error):
    return "".join(format_exception(describe(error).loggable))


def test_error_without_secrets_is_logged_as_it_is():
    error = caught(fail, "no such file")
    assert describe(error).loggable is error


@pytest.mark.parametrize("where", ["message", "cause", "context", "note", "group"])
def test_credentials_are_masked_in_what_is_logged(where):
    secret = f"hunter{1 + 1}"
    error = leaking(where, f"password={secret}")
    text = logged(error)
    assert secret not in text
    assert "password=***" in text
    assert type(describe(error).loggable).__name__ == type(error).__name__
    assert ", in leaking" in text


def leaking(where, text):
    inner = ValueError(text)
    try:
        match where:
            case "message":
                raise inner
            case "cause":
                raise KeyError("outer") from inner
            case "context":
                try:
                    raise inner
                except ValueError:
                    raise KeyError("outer")  # noqa: B904
            case "note":
                inner = KeyError("outer")
                inner.add_note(text)
                raise inner
            case "group":
                raise ExceptionGroup("several", [KeyError("other"), inner])
    except Exception as error:
        return error


def test_what_is_logged_has_a_bound_however_long_messages_and_chains_are():
    error = ValueError("x" * 10_000_000)
    for _ in range(100):
        outer = KeyError("y")
        outer.__cause__, error = error, outer
    error.__context__ = error
    assert len(logged(error)) < 6 * TRACEBACK_LENGTH
