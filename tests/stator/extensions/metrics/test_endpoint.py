"""A worker's own endpoint: its figures, and whether it lives and takes on work."""

import socket
import urllib.error
import urllib.request
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError

from stator.conf import Settings
from stator.extensions.metrics.endpoint import Endpoint
from stator.extensions.metrics.measures import BUCKETS, Durations
from stator.runner import StatorRunner
from stator.testing import advance, attempt
from stator.worker.health import Health
from tests.servers.user import free_port
from tests.sizes import PATIENCE
from tests.stator.running import refusal_of_runstator
from tests.testapp.models import Line
from tests.testapp.operators import Parcel
from tests.testapp.stepped import Purchase, scripts

LOCAL = "127.0.0.1"


class Stub:
    """The part of a worker that probes read."""

    is_ready = True

    settings = Settings()

    def __init__(self) -> None:
        self.health = Health()
        self.tables = SimpleNamespace(left_out=[])


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{LOCAL}:{port}{path}", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture
def stub() -> Any:
    worker: Any = Stub()
    endpoint = Endpoint(worker, LOCAL, 0)
    endpoint.start()
    worker.port = endpoint.port
    yield worker
    endpoint.stop()


class TestProbes:
    def test_life_and_readiness_are_two_things(self, stub: Any) -> None:
        alive = (200, "alive\n")
        assert (get(stub.port, "/health"), get(stub.port, "/ready")) == (alive, (200, "ready\n"))
        stub.is_ready = False
        assert (get(stub.port, "/health"), get(stub.port, "/ready")) == (alive, (503, "not\n"))
        stub.is_ready, lacking = True, "table shop_invoice lacks column total; run manage.py migrate"
        stub.tables.left_out.append(SimpleNamespace(lacking=lacking))
        assert (get(stub.port, "/health"), get(stub.port, "/ready")) == (alive, (200, f"ready\nleft out: {lacking}\n"))
        # The loop has not turned for that long.
        stub.settings = Settings(WATCHDOG=0)
        assert get(stub.port, "/health") == (503, "not\n")
        assert get(stub.port, "/ready")[0] == 503

    def test_of_one_that_something_holds_up_for_good(self, stub: Any) -> None:
        stub.health.watch("actions", lambda patience: "held" if patience <= 1 else "")
        assert get(stub.port, "/health") == (200, "alive\n")
        stub.health.watch("handlers", lambda patience: "held")
        assert get(stub.port, "/health") == (503, "not\n")

    def test_client_that_says_nothing_keeps_nobody_else_waiting(self, stub: Any) -> None:
        with socket.create_connection((LOCAL, stub.port)):
            assert get(stub.port, "/health")[0] == 200


def pay(order: Any) -> None:
    """One step more in each attempt."""
    for name in ("reserve", "charge", "mail")[: 1 + order.stator.attempt]:
        order.stator.step(name, str)


@pytest.mark.needs("steps")
@pytest.mark.django_db(transaction=True)
def test_figures_of_a_worker_are_those_of_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its attempts, and of the steps that were recorded and of those that were not repeated."""
    monkeypatch.setitem(scripts, "pay", pay)
    attempt(Purchase.objects.create(script="pay"))
    advance(90, Purchase)
    for orders in ("", "", "wait", "fail", "later"):
        Parcel.objects.create(orders=orders, address="a")
    Line.objects.create()
    port, pages = free_port(), []

    def look(worker: Any) -> None:
        # All attempts: less would be a matter of their order.
        if sum(worker.recorder.handled.values()) == 10:
            pages.append((get(port, "/metrics"), get(port, "/ready"), worker.id))
            worker.stop()

    command = {"metrics_port": port - 1, "metrics_address": LOCAL}
    StatorRunner([Parcel, Line, Purchase], run_for=PATIENCE, progress=look, command=command, number=1).run()
    (status, text), ready, worker_id = pages[0]
    assert (status, ready[0]) == (200, 200)
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    figures = {name: float(value) for name, value in lines}
    counted = {
        key.removeprefix("stator_worker_"): value
        for key, value in figures.items()
        if key.startswith(("stator_worker_attempts_total", "stator_worker_steps_total"))
    }
    assert counted == {
        'attempts_total{model="testapp.parcel",outcome="moved"}': 4,
        'attempts_total{model="testapp.parcel",outcome="waits"}': 2,
        'attempts_total{model="testapp.parcel",outcome="failed"}': 1,
        'attempts_total{model="testapp.line",outcome="moved"}': 2,
        'attempts_total{model="testapp.purchase",outcome="waits"}': 1,
        'steps_total{model="testapp.purchase",outcome="recorded"}': 1,
        'steps_total{model="testapp.purchase",outcome="reused"}': 2,
    }
    assert figures['stator_worker_run_seconds_count{model="testapp.parcel"}'] == 7
    assert figures['stator_worker_moves_total{model="testapp.parcel",state="sent"}'] == 2
    assert figures["stator_worker_claim_seconds_count"] > 0
    assert figures["stator_worker_record_seconds_count"] > 0
    assert figures["stator_worker_record_seconds_sum"] > 0
    assert figures["stator_worker_claimed_total"] == 10
    assert f'worker="{worker_id}"' in text
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((LOCAL, port))


@pytest.mark.django_db(transaction=True)
def test_worker_that_cannot_reach_the_database_takes_on_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = StatorRunner([Line], run_for=PATIENCE)
    worker = runner.worker()
    seen: list[bool] = []
    claim = worker.operations[0].claim
    broken = [True]

    def claim_or_fail(*args: Any, **kwargs: Any) -> Any:
        if broken[0]:
            raise OperationalError("server closed the connection unexpectedly")
        return claim(*args, **kwargs)

    def look(worker: Any) -> None:
        seen.append(worker.is_ready)
        if not worker.is_ready:
            broken[0] = False
        elif worker.recorder.handled["testapp.line"] == 2:
            worker.stop()

    monkeypatch.setattr(worker.operations[0], "claim", claim_or_fail)
    Line.objects.create()
    worker.progress = look
    worker.run()
    assert False in seen
    assert seen[-1]
    assert not worker.is_ready


@pytest.mark.django_db(transaction=True)
def test_process_whose_port_is_taken_ends_and_names_it(worker_process: Any) -> None:
    with socket.create_server((LOCAL, 0)) as taken:
        port = taken.getsockname()[1]
        with worker_process("testapp.Line", "--metrics-port", str(port)) as process:
            assert process.wait() == 2
            told = f"runstator: --metrics-port: {LOCAL}:{port} cannot be used: Address already in use"
            assert told in process.output()


def test_ports_that_there_are_not_are_refused() -> None:
    for options, line in (
        ({"metrics_port": 65535, "processes": 2}, "--metrics-port 65535 must be from 1 to 65534"),
        ({"metrics_port": 9100, "metrics_address": ""}, "--metrics-address is empty; name an address of this host"),
    ):
        assert line in refusal_of_runstator(**options)


# Counts and timings of a worker process


def test_buckets_count_all_that_took_no_longer():
    durations = Durations()
    for seconds in (0.001, 0.002, 0.3, 4000):
        durations.add(seconds)
    buckets = dict(durations.buckets())
    assert buckets["0.001"] == 1
    assert buckets["0.0025"] == 2
    assert buckets["0.25"] == 2
    assert buckets["0.5"] == 3
    assert buckets[f"{BUCKETS[-1]:g}"] == 3
    assert buckets["+Inf"] == 4
    assert durations.sum == pytest.approx(4000.303)
