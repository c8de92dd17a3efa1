"""The liveness file, and when a worker counts as frozen. That it ends the process is tried with real ones."""

import stat
import time

import pytest

from stator.worker.watchdog import PATIENCE, Health, Watchdog, write_liveness


def test_liveness_file_tells_the_time(tmp_path):
    path = tmp_path / "alive"
    write_liveness(path)
    assert abs(time.time() - int(path.read_text())) < 30
    assert [path.name for path in tmp_path.iterdir()] == ["alive"]


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
    assert watchdog._trouble() == "the event loop was blocked for 12 s"


def test_frozen_worker_does_not_look_alive(tmp_path):
    watchdog = Watchdog(10.0, str(tmp_path / "alive"), lambda: "")
    watchdog._ticked -= 6
    watchdog._show_life()
    assert not list(tmp_path.iterdir())


def test_failing_to_write_leaves_nothing_behind(tmp_path):
    (tmp_path / "alive").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_liveness(tmp_path / "alive")
    assert [path.name for path in tmp_path.iterdir()] == ["alive"]


def test_process_is_well_while_no_part_has_trouble():
    health = Health()
    assert health.trouble() == ""
    health.watch("loop", lambda patience: "")
    assert health.trouble() == ""


def test_first_part_with_trouble_is_named_and_gets_the_patience():
    asked = []
    health = Health()
    health.watch("loop", lambda patience: asked.append(patience) or "")
    health.watch("threads", lambda patience: "All threads are stuck.")
    health.watch("beats", lambda patience: "No heartbeat.")
    assert health.trouble() == "All threads are stuck."
    health.trouble(0.5)
    assert asked == [PATIENCE, 0.5]
