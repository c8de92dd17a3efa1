"""What holds up a process."""

from stator.worker.health import PATIENCE, Health


def test_first_part_with_trouble_is_named_and_gets_the_patience():
    asked = []
    health = Health()
    health.watch("loop", lambda patience: asked.append(patience) or "")
    health.watch("threads", lambda patience: "All threads are stuck.")
    health.watch("beats", lambda patience: "No heartbeat.")
    assert health.trouble() == "All threads are stuck."
    health.trouble(0.5)
    assert asked == [PATIENCE, 0.5]
