"""Problems of many: one for each cause, with its effects; no place that shows them is green while one stands."""

import re
from typing import Any

import pytest
from django.db import connection

from stator.extensions.fleet.versions import graphs_published
from stator.extensions.problems.kinds import problems_in
from stator.extensions.problems.survey import survey
from stator.extensions.related.waits import parking
from stator.graph import State
from stator.models import Pause, Report, Worker
from stator.rows.problem import Problem
from tests.commanding import asked
from tests.queries import unbounded
from tests.stator.making import ago, change, put, raw
from tests.stator.overviews import failing, held, worker
from tests.testapp.explained import Errand
from tests.testapp.operators import Parcel, ParcelGraph
from tests.testapp.waiting import Rollout

pytestmark = pytest.mark.django_db


def found() -> list[Problem]:
    return problems_in(survey("default", [Parcel]))


def codes() -> list[str]:
    return [problem.code for problem in found()]


def test_column_that_only_workers_read_is_missed() -> None:
    if not connection.features.can_rollback_ddl:
        pytest.skip("a changed table stays changed")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE testapp_errand RENAME COLUMN state_version TO former_version")
    [problem] = problems_in(survey("default", [Errand]))
    assert (problem.code, problem.level) == ("incomplete", "error")
    assert "lacks column state_version" in problem.sentence


def test_without_any_worker_all_models_are_one_problem() -> None:
    for _ in range(2):
        put(Parcel)
    put(Errand, state_ready=False, state_next_attempt=ago(-600))
    [problem] = problems_in(survey("default", [Parcel, Errand]))
    assert (problem.code, problem.where, problem.count) == ("no_worker", "workers", 3)
    assert problem.sentence == "no worker is running: 3 objects of 2 models wait"
    assert problem.detail == "testapp.Parcel, testapp.Errand"
    # Once a worker serves one of them, the other is the problem.
    worker()
    [problem] = problems_in(survey("default", [Parcel, Errand]))
    assert (problem.code, problem.where) == ("no_worker", "testapp.Errand")


def test_what_no_worker_moves_needs_none() -> None:
    put(Parcel, state="delivered")
    Parcel.stator.pause(reason="stocktaking")
    put(Parcel)
    assert codes() == ["paused"]


def test_worker_without_notifications_is_a_trouble_that_says_why() -> None:
    worker(published={"deaf": {"default": "TypeError: unexpected keyword argument"}})
    [problem] = found()
    assert (problem.code, problem.level) == ("deaf_worker", "warning")
    assert problem.sentence == (
        "example, process 42, receives no notifications, so it finds new objects by polls, up to 1 s late: "
        "TypeError: unexpected keyword argument"
    )
    assert "LISTEN_DSN" in problem.remedy


def test_two_live_workers_of_one_name_are_a_trouble_and_a_replaced_one_is_none() -> None:
    worker(id="0" * 12, name="mill")
    assert found() == []
    worker(id="1" * 12, name="mill", host="other")
    [problem] = found()
    assert (problem.code, problem.level, problem.where) == ("same_name", "warning", "worker mill")
    assert "2 live workers have this name" in problem.sentence
    assert "--name" in problem.remedy
    assert {row["name"] for row in asked("stator", "workers")} == {"mill"}


def test_pause_with_its_effects_folded_in() -> None:
    worker()
    put(Parcel, state_changed=ago(8000))
    put(Parcel, state="stamped", state_changed=ago(90))
    Pause.objects.create(model_label="testapp.parcel", state="packed", actor="anna", reason="disk is full")
    slow, paused = found()
    assert (slow.code, paused.code) == ("slow", "paused")
    assert "1 waits in stamped" in slow.sentence
    words = r"paused: packed by anna for \d+ s, without an end \(disk is full\); 1 waits; the first has waited 2 h 13 m"
    assert re.fullmatch(f"{words}; 1 later than expected", paused.sentence)
    assert paused.command == "manage.py stator resume testapp.Parcel --state packed"


@pytest.mark.needs("limits")
def test_full_limit_with_its_holders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ParcelGraph.packed, "concurrency", 1)
    worker()
    one = held()
    put(Parcel, state_changed=ago(30))
    assert codes() == []
    put(Parcel, state_changed=ago(300))
    [problem] = found()
    assert problem.code == "full_limit"
    assert problem.text.startswith("2 wait in packed: limit 1 of 1; the first has waited 5 m")
    assert re.fullmatch(rf"held by #{one.pk}, the longest for 1\d s", problem.detail)
    # It runs for some seconds, so to unlock it would only repeat its work.
    assert [(action.label, action.action) for action in problem.actions] == [("List", ""), ("Holders", "")]
    assert "unlock" not in f"{problem.remedy} {problem.command}"
    # For longer than the state expects, it seems to hang.
    change(one, state_attempted=ago(4000))
    [problem] = [each for each in found() if each.code == "full_limit"]
    assert problem.command == f"manage.py stator unlock testapp.Parcel {one.pk}"
    assert [(action.action, action.pks) for action in problem.actions[2:]] == [("stator_unlock", (one.pk,))]


def test_failing_ones_by_their_error_and_those_without_a_report() -> None:
    worker()
    failing("aa")
    failing("bb", error="KeyError")
    failing("bb", error="KeyError")
    put(Parcel, state_ready=False, state_failures=2, state_next_attempt=ago(-500))
    assert [problem.sentence for problem in found()] == [
        "2 failing in packed with KeyError",
        "1 failing in packed with ValueError",
        "4 failing in all, 1 of them with other errors, or none",
    ]


def test_retried_objects_do_not_count_as_healthy() -> None:
    worker()
    parcel = failing()
    gone = failing()
    raw(Parcel).filter(pk=parcel.pk).update(state_failures=0)
    raw(Parcel).filter(pk=gone.pk).update(state_failures=0, state="returned")
    [group] = survey("default", [Parcel]).groups
    assert (group.failing, group.retried, group.gave_up) == ([], 1, 1)
    raw(Parcel).filter(pk=parcel.pk).update(state_attempted=ago(-5))
    [group] = survey("default", [Parcel]).groups
    assert group.retried == 0


def test_waiting_for_an_object_that_has_ended_elsewhere_is_an_error_at_once() -> None:
    worker(models=["testapp.rollout"])
    done = put(Rollout, state="stale", state_ready=False)
    change(put(Rollout, after=done), **parking())
    [problem] = problems_in(survey("default", [Rollout]))
    assert (problem.code, problem.level) == ("waiting", "error")
    assert problem.sentence.startswith("1 waits in new for one testapp.Rollout, which ended in stale")
    assert problem.detail == f"#{done.pk} has to be in done; it does not get further by itself"


class NewerGraph(ParcelGraph):
    """A state more, as a newer release has it."""

    checked = State()
    ParcelGraph.packed.transitions_to(checked)


def newer() -> None:
    label = "testapp.parcel"
    for pid in (3, 4):
        worker(id=f"{pid:012x}", host="oak", pid=pid, published=graphs_published({label: NewerGraph}))


def test_state_that_live_workers_know_is_a_warning_and_one_that_nobody_knows_an_error() -> None:
    newer()
    change(put(Parcel), state="checked")
    theirs, versions = found()
    assert (versions.code, theirs.code, theirs.level) == ("versions", "unknown_state", "warning")
    assert theirs.sentence == ("1 in a state that this code does not know, but live workers do: checked (oak/3, oak/4)")
    # Each has a list of its own, so that all in it may be moved.
    change(put(Parcel), state="mislaid")
    nobodys, again, _ = found()
    assert (nobodys.code, nobodys.level, nobodys.count, again) == ("unknown_state", "error", 1, theirs)
    assert nobodys.sentence == "1 in a state that neither this code nor a live worker knows: mislaid"
    assert nobodys.command == "manage.py stator move testapp.Parcel STATE --state mislaid --reason WHY"
    assert [action.action for problem in (nobodys, theirs) for action in problem.actions] == ["stator_move", ""]
    raw(Worker).update(heartbeat=ago(90))
    worker()
    [lost] = found()
    assert (lost.code, lost.level, lost.count) == ("unknown_state", "error", 2)
    assert [action.action for action in lost.actions] == ["stator_move"]


@pytest.mark.parametrize(("ready", "failures"), [(True, 0), (False, 2)])
def test_quarantined_object_is_in_one_problem_only(ready: bool, failures: int) -> None:
    worker()
    gone = put(
        Parcel, state_crashes=3, state_ready=ready, state_next_attempt=ago(900), state_changed=ago(900),
        state_failures=failures,
    )  # fmt: skip
    Report.objects.create(model_label="testapp.parcel", object_pk=str(gone.pk), error="LeaseLost", fingerprint="aa")
    assert codes() == ["quarantined"]
    # Others in its state have their own problem, and their own time.
    put(Parcel, state_ready=ready, state_next_attempt=ago(300), state_changed=ago(900))
    quarantined, slow = found()
    assert (quarantined.code, slow.code) == ("quarantined", "slow")
    assert slow.sentence.startswith(
        "1 waits in packed; the first has waited 5 m" if ready else "objects are due in packed"
    )
    assert 300 <= (slow.since or 0) < 800


def test_takes_bounded_statements(django_assert_max_num_queries: Any) -> None:
    for _ in range(3):
        failing()
        held()
        put(Parcel, state_changed=ago(8000))
    # Within a transaction, two of them are for a savepoint. One reads how fast those move that have waited for long.
    with django_assert_max_num_queries(15) as queries:
        found()
    assert not unbounded([query["sql"] for query in queries.captured_queries])
