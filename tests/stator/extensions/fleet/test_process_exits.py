"""How worker processes ended, as told by those that replaced them."""

from stator.extensions.fleet.process_exits import exit_reason


def test_end_of_a_process_is_told_as_shells_tell_it():
    told = [exit_reason(code) for code in (1, -9, -11, -63)]
    assert told == ["exit 1", "exit 137, SIGKILL: out of memory?", "exit 139, SIGSEGV", "exit 191, signal 63"]
