"""The parts beside a worker's loops start in their order, stop in the reverse one, and are looked after meanwhile."""

from functools import partial

from stator.worker.parts import WorkerPart, WorkerParts


def test_parts_stop_in_the_reverse_order_of_their_start():
    told = []
    parts = WorkerParts(
        [
            WorkerPart(start=partial(told.append, "+threads"), stop=partial(told.append, "-threads")),
            WorkerPart(stop=partial(told.append, "-pool"), beat=partial(told.append, "sweep")),
            WorkerPart(start=partial(told.append, "+server"), stop=partial(told.append, "-server")),
        ]
    )
    parts.start()
    parts.beat()
    parts.stop()
    assert told == ["+threads", "+server", "sweep", "-server", "-pool", "-threads"]
