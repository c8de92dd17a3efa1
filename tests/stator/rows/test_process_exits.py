"""How worker processes ended, as told by those that replaced them."""

import pytest

from stator.rows.process_exits import exit_reason


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (1, "exit 1"),
        (-9, "exit 137, SIGKILL: out of memory?"),
        (-11, "exit 139, SIGSEGV"),
        (-63, "exit 191, signal 63"),
    ],
)
def test_end_of_a_process_is_told_as_shells_tell_it(exit_code, words):
    assert exit_reason(exit_code) == words
