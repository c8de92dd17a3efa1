"""Helpers that projects use in their own tests."""

import doctest
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from hypothesis import strategies

from stator import pytest_plugin, testing
from stator.conf import load_settings
from stator.db import operations_for
from stator.db.interface import new_worker_id
from stator.exceptions import EventRefused
from stator.models import StatorModel
from stator.runner import StatorRunner
from stator.testing import Moved, NotDrained, Waiting, advance, asend, assert_moves, attempt, check_graph, drain, send
from tests.sizes import PATIENCE
from tests.stator.admin.requests import set_columns
from tests.stator.making import put
from tests.testapp.approvals import Expense
from tests.testapp.models import Line, SyncLine
from tests.testapp.operators import Eager, Parcel, ParcelGraph

pytestmark = pytest.mark.django_db

ALL = [Line, SyncLine, Parcel, Eager, Expense]
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "testing.rst"


@pytest.fixture(autouse=True)
def project_of_few_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the tests are so many that each tool without models takes seconds."""
    monkeypatch.setattr(StatorModel, "subclasses", ALL)


def run_examples(examples: doctest.DocTest) -> None:
    printed: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(examples, out=printed.append)
    assert not runner.failures, "".join(printed)
    assert runner.tries


def names() -> dict[str, Any]:
    made = {**vars(testing), "Parcel": Parcel, "ParcelGraph": ParcelGraph, "Line": Line, "strategies": strategies}
    made["check_graph"] = partial(check_graph, max_examples=10)  # stator.extensions.check_graph
    return made


PARTS = [
    *(testing, drain, attempt, advance, assert_moves),
    check_graph,  # stator.extensions.check_graph
]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_the_examples_of_the_docstrings_run(part: Any) -> None:
    text = part.__doc__.replace("testapp.Parcel 1", "testapp.Parcel ...")
    run_examples(doctest.DocTestParser().get_doctest(text, names(), part.__name__, None, 0))


@pytest.mark.needs("check_graph")
def test_the_examples_of_the_guide_run() -> None:
    text = GUIDE.read_text()
    run_examples(doctest.DocTestParser().get_doctest(text, names(), GUIDE.name, None, 0))


class TestDrain:
    def test_takes_rows_of_all_models_as_far_as_they_go(self) -> None:
        rows = [Line.objects.create(), SyncLine.objects.create(), Parcel.objects.create()]
        assert drain() == 2 + 1 + 2
        for row in rows:
            row.refresh_from_db()
        assert [str(row.stator.state) for row in rows] == ["last", "last", "sent"]

    def test_does_not_raise_errors_of_handlers(self) -> None:
        parcel = Parcel.objects.create(orders="fail", address="nowhere")
        assert drain(Parcel) == 1
        parcel.refresh_from_db()
        assert parcel.state_failures == 1

    def test_names_rows_that_never_rest(self) -> None:
        row = Eager.objects.create()
        left = rf"still ready after 7 attempts each: testapp.Eager {row.pk} in down \(moved 7"
        with pytest.raises(NotDrained, match=left):
            drain(Eager, limit=7)


class TestAttempt:
    def test_attempts_a_row_that_is_not_due_or_in_quarantine_and_counts_errors(self) -> None:
        later, failing, parcel = (Parcel.objects.create(orders=orders) for orders in ("later", "fail", ""))
        assert [attempt(later) for _ in range(2)] == [Waiting(30, None, "no van today")] * 2
        assert later.state_attempts == 2
        assert [type(attempt(failing)) for _ in range(3)] == [Waiting, Waiting, Moved]
        assert failing.state == "returned"
        set_columns(parcel, state_crashes=3, state_ready=False)
        assert drain(Parcel) == 0
        attempt(parcel)
        assert (parcel.state, parcel.state_crashes) == ("stamped", 0)

    def test_ends_the_claim_of_another(self) -> None:
        parcel = Parcel.objects.create()
        operations = operations_for(Parcel, load_settings(), new_worker_id())
        [claim] = operations.claim(list(Parcel.state_graph.automatic_states), 1)
        attempt(parcel)
        assert parcel.state == "stamped"
        assert not claim.still_mine()

    @pytest.mark.parametrize("state", ["sent", "delivered"])
    def test_refuses_a_state_that_is_not_attempted(self, state: str) -> None:
        parcel = Parcel.objects.create(state=state)
        with pytest.raises(ValueError, match=f"testapp.parcel {parcel.pk} cannot be attempted"):
            attempt(parcel)


class TestAdvance:
    def test_makes_rows_due(self) -> None:
        parcel = Parcel.objects.create(orders="wait")
        drain(Parcel)
        advance(30, Parcel)
        assert drain(Parcel) == 0
        advance(31, Parcel)
        assert drain(Parcel) == 1
        parcel.refresh_from_db()
        assert parcel.state_attempts == 2

    def test_makes_timeouts_and_deletions_happen(self) -> None:
        parcel, gone = Parcel.objects.create(state="sent"), Parcel.objects.create(state="delivered")
        advance(6.9 * 86400)
        drain(Parcel)
        parcel.refresh_from_db()
        assert parcel.state == "sent"
        assert not Parcel.objects.filter(pk=gone.pk).exists()
        advance(0.2 * 86400)
        drain(Parcel)
        parcel.refresh_from_db()
        assert parcel.state == "returned"

    def test_time_that_passes_ends_leases(self) -> None:
        parcel = Parcel.objects.create()
        operations = operations_for(Parcel, load_settings(), new_worker_id())
        [claim] = operations.claim(list(Parcel.state_graph.automatic_states), 1)
        advance(61)
        assert not claim.still_mine()
        drain(Parcel)
        parcel.refresh_from_db()
        assert parcel.state == "sent"

    def test_time_is_a_number_of_seconds_and_does_not_go_back(self) -> None:
        seconds: Any
        for seconds in ("1h", Parcel, None, -1, 1e15):
            with pytest.raises(
                ValueError, match="of at least 0, such as 3600, and at most 3153600000; time only moves"
            ):
                advance(seconds)


@pytest.mark.parametrize("given", ["testapp.Parcel", [Parcel]])
def test_models_are_classes(given: Any) -> None:
    for tool in (drain, partial(advance, 60)):
        with pytest.raises(TypeError, match=r"is not a model; pass the class of a managed model, such as Parcel"):
            tool(given)


def test_models_are_managed() -> None:
    unmanaged: Any = User
    for tool in (drain, partial(advance, 60)):
        with pytest.raises(TypeError, match=r"auth.User is not managed; pass a model that inherits StatorModel"):
            tool(unmanaged)
    with pytest.raises(TypeError, match=r"takes a StateGraph; pass the graph of a model as Parcel.state_graph"):
        check_graph(unmanaged)


class TestAssertMoves:
    def test_takes_states_and_names(self) -> None:
        assert_moves(Parcel.objects.create(), "stamped", ParcelGraph.sent)

    def test_tells_both_paths_and_the_last_words(self) -> None:
        parcel = Parcel.objects.create(orders="never")
        with pytest.raises(AssertionError) as raised:
            assert_moves(parcel, "stamped", "sent")
        assert str(raised.value) == (
            f"testapp.Parcel {parcel.pk} went packed -> returned, expected packed -> stamped -> sent; "
            "latest report, in packed: stator.exceptions.Fail: no such street"
        )

    def test_a_row_may_be_expected_to_stay(self) -> None:
        assert_moves(Parcel.objects.create(orders="wait"))
        with pytest.raises(AssertionError, match="went nowhere from packed, expected packed -> stamped"):
            assert_moves(Parcel.objects.create(orders="wait"), "stamped")

    def test_sees_a_move_by_hand_inside_of_a_test(self) -> None:
        assert_moves(Parcel.objects.create(orders="by hand"), "delivered")

    def test_sees_that_the_row_was_deleted(self) -> None:
        parcel = Parcel.objects.create(state="delivered")
        advance(86401)
        with pytest.raises(AssertionError, match=r"went delivered -> \(deleted\)"):
            assert_moves(parcel)


def test_sent_event_is_followed_by_the_attempts_that_it_makes_ready():
    expense = put(Expense)
    assert send(expense, "approve", {"note": "ok"}, by=User(username="ann", is_superuser=True)).missing == 1
    sent = async_to_sync(asend)(expense, "approve", {"note": "fine"}, by=User(username="ben", is_superuser=True))
    assert (sent.outcome, expense.state) == ("moved", "paid")
    assert expense.seen == "approve {'note': 'fine', 'amount': None} ben"
    with pytest.raises(EventRefused, match="it waits for receipt"):
        send(expense, "reject")


# The fixtures for pytest


ROOT = Path(__file__).parents[2]

# Not by ``pytest_plugins``: where the distribution is installed, pytest has the plugin under another name already.
stator_drain = pytest_plugin.stator_drain
stator_attempt = pytest_plugin.stator_attempt
stator_advance = pytest_plugin.stator_advance
stator_runner = pytest_plugin.stator_runner


@pytest.mark.django_db
def test_fixtures_move_rows(stator_drain: Any, stator_attempt: Any, stator_advance: Any) -> None:
    parcel = Parcel.objects.create()
    assert stator_attempt(parcel).to == "stamped"
    assert stator_drain(Parcel) == 1
    stator_advance(7 * 86400 + 1, Parcel)
    stator_drain(Parcel)
    parcel.refresh_from_db()
    assert parcel.state == "returned"


@pytest.mark.django_db
def test_runner_is_one_over_all_models(stator_runner: Any) -> None:
    assert isinstance(stator_runner, StatorRunner)
    assert stator_runner.models == ALL
    assert stator_runner.until_idle
    assert not stator_runner.heed_signals
    Line.objects.create()
    Parcel.objects.create()
    assert stator_runner.run_single_cycle() == 2


def test_plugin_is_loaded_without_django(tmp_path: Path) -> None:
    code = (
        "import sys, pytest\n"
        "code = pytest.main(['-p', 'stator.pytest_plugin', '-p', 'no:cacheprovider', '--fixtures', '-q'])\n"
        "assert not any(name.partition('.')[0] in ('django', 'hypothesis') for name in sys.modules)\n"
        "sys.exit(code)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("DJANGO_SETTINGS_MODULE", None)
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, cwd=tmp_path, env=environment, capture_output=True, text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    assert ended.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), ended.stdout + ended.stderr
    assert {"stator_drain", "stator_attempt", "stator_advance", "stator_runner"} <= set(ended.stdout.split())
