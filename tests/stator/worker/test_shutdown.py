"""How often a worker was asked to stop, by which of its signals."""

import pytest

from stator.worker.shutdown import StopRequests


@pytest.mark.parametrize(
    ("counts", "stops"),
    [
        pytest.param([None, None], [1, 2], id="without a supervisor each counts"),
        pytest.param([0, 1], [1, 1], id="to the group: directly, then by the supervisor"),
        pytest.param([1, 1], [1, 1], id="to the group: the supervisor was quicker"),
        pytest.param([0, 1, 1, 2], [1, 1, 1, 2], id="to the group twice"),
        pytest.param([0, 0], [1, 1], id="directly alone"),
        pytest.param([1, 2], [1, 2], id="by the supervisor twice"),
        pytest.param([2], [2], id="by the supervisor twice, merged into one"),
        pytest.param([1, None], [1, 2], id="the supervisor was killed meanwhile"),
    ],
)
def test_signal_counts_once_whichever_way_it_comes(counts, stops):
    stopped, count = [], [None]
    signals = StopRequests(lambda: stopped.append(1), lambda: count[0])
    told = []
    for each in counts:
        count[0] = each
        signals.hear()
        told.append(len(stopped))
    assert told == stops


def test_worker_that_has_no_supervisor_counts_its_signals():
    stopped = []
    signals = StopRequests(lambda: stopped.append(1))
    signals.hear(), signals.hear()
    assert len(stopped) == 2
