"""The liveness file, and when a worker counts as frozen. That it ends the process is tried with real ones."""

import re
import selectors
import socket
import stat
import sys
import threading
import time

import pytest
from django.core.management import call_command

from stator.extensions.watchdog.watchdog import Watchdog, write_liveness
from tests.processes import wait_until
from tests.sizes import PATIENCE
from tests.stator.running import refusal_of_runstator


def test_liveness_file_tells_the_time(tmp_path):
    path = tmp_path / "alive"
    write_liveness(path)
    assert abs(time.time() - int(path.read_text())) < 30
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_liveness(tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["alive", "folder"]


def test_liveness_file_is_for_its_owner_alone(tmp_path):
    path = tmp_path / "alive"
    write_liveness(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_liveness_file_replaces_a_link_and_does_not_follow_it(tmp_path):
    """Security rule S12."""
    canary, path = tmp_path / "canary", tmp_path / "alive"
    canary.write_text("untouched")
    path.symlink_to(canary)
    write_liveness(path)
    assert canary.read_text() == "untouched"
    assert not path.is_symlink()


def test_liveness_file_that_cannot_be_written_does_not_end_the_watch(tmp_path, caplog):
    watchdog = Watchdog(10.0, str(tmp_path / "gone" / "alive"), lambda: "")
    watchdog._show_life()
    assert caplog.messages == ["stator.liveness_failed"]


def test_worker_that_does_not_tick_or_is_unwell_is_in_trouble():
    watchdog = Watchdog(10.0, None, lambda: "all threads are stuck")
    assert watchdog._trouble() == "all threads are stuck"
    watchdog._ticked -= 12
    assert re.fullmatch(r"the event loop was blocked for 1\d s", watchdog._trouble())


class Loop:
    """A thread that ticks as the event loop does, and is then in a call until the test is over."""

    def __init__(self, watchdog, call):
        self.there, self.over = threading.Event(), threading.Event()
        self.ended, self.end = socket.socketpair()
        self.thread = threading.Thread(target=self.run, args=(watchdog, call))

    def run(self, watchdog, call):
        watchdog.tick()
        watchdog._ticked -= 1
        call(self)

    def __enter__(self):
        self.thread.start()
        assert self.there.wait(PATIENCE)
        return self.thread

    def __exit__(self, *error):
        self.over.set()
        self.end.send(b"x")
        self.thread.join()
        self.ended.close()
        self.end.close()


def blocking_handler(loop):
    loop.there.set()
    loop.over.wait(PATIENCE)


def waiting_for_events(loop):
    with selectors.DefaultSelector() as selector:
        selector.register(loop.ended, selectors.EVENT_READ)
        loop.there.set()
        selector.select(PATIENCE)


def test_call_that_blocks_the_loop_is_logged_once_with_its_stack(caplog):
    watchdog = Watchdog(10.0, None, lambda: "")
    with Loop(watchdog, blocking_handler):
        watchdog._tell_block()
        watchdog._tell_block()
        # Another block at the same place within a minute.
        watchdog._ticked -= 1
        watchdog._tell_block()
    [line] = caplog.records
    assert (line.message, line.levelname) == ("stator.loop_blocked", "WARNING")
    assert line.seconds >= 1
    assert re.search(r"test_watchdog\.py:\d+ blocking_handler\(\)", line.stack)


def test_loop_that_waits_or_turns_is_not_blocked(caplog):
    watchdog = Watchdog(10.0, None, lambda: "")
    with Loop(watchdog, waiting_for_events) as loop:
        wait_until(lambda: sys._current_frames()[loop.ident].f_code.co_name == "select")
        watchdog._tell_block()
    watchdog.tick()
    watchdog._tell_block()
    assert caplog.records == []


def test_frozen_worker_does_not_look_alive(tmp_path):
    watchdog = Watchdog(10.0, str(tmp_path / "alive"), lambda: "")
    watchdog._ticked -= 6
    watchdog._show_life()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", ["", "/"])
def test_liveness_file_that_cannot_be_written_is_refused(path):
    assert f"--liveness-file {path!r} cannot be written" in refusal_of_runstator(liveness_file=path)


@pytest.mark.django_db(transaction=True)
def test_command_writes_the_liveness_file(tmp_path):
    call_command("runstator", "testapp.Line", "--until-idle", "--liveness-file", str(tmp_path / "alive"))
    assert (tmp_path / "alive").read_text().strip().isdigit()
