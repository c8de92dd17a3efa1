"""The health of a process: lasting troubles that its parts report."""

from stator.worker.health import PATIENCE, Health


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
