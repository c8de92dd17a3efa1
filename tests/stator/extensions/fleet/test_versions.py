"""Versions of code in a fleet: which workers run other graphs than others or than this process, and who is told."""

import pytest

from stator.extensions.fleet.fingerprints import fingerprints
from stator.extensions.fleet.presence import published_by
from stator.extensions.fleet.versions import Fleet, graphs_published
from stator.extensions.problems.kind import differing
from stator.extensions.problems.reasons import explain_counts
from stator.graph import State, StateGraph
from stator.models import Worker
from stator.rows import workers
from stator.rows.workers import live_workers
from tests.stator.making import ago, change, operations_of, put, raw
from tests.testapp.basic import Step
from tests.testapp.explained import Errand, ErrandGraph

pytestmark = pytest.mark.django_db

LABEL = "testapp.errand"


class NewerGraph(ErrandGraph):
    """A state more, and another option of one."""

    limited = State(try_interval=60, concurrency=2)
    checked = State(try_interval=60)
    ErrandGraph.new.transitions_to(checked)
    checked.transitions_to(ErrandGraph.done)

    @classmethod
    def handle_checked(cls, errand):
        return cls.done


class OlderGraph(StateGraph):
    new = State(try_interval=60)
    posted = State()
    new.transitions_to(posted)

    @classmethod
    def handle_new(cls, errand):
        return cls.posted


NONSENSE = [[], {"stator": 1}, {"stator": {"graphs": [1]}}, {"stator": {"graphs": {LABEL: {}}}}]
GRAPHS = ("versions of its graph run", "in options or transitions")


def live(number, graph=ErrandGraph, *, label=LABEL, host="oak"):
    """A live worker that runs this graph."""
    return Worker.objects.create(
        id=f"{number:012x}", host=host, pid=number, version="1", models=[label], database="default",
        # Alive for long enough on a crowded machine.
        published=graphs_published({label: graph}) if graph else {}, heartbeat=ago(-600),
    )  # fmt: skip


def of_another(state, **columns):
    """An object that another version of the code has moved."""
    errand = put(Errand)
    change(errand, state=state, **columns)
    return errand


def told():
    fleet = Fleet("default", live_workers("default", graphs=workers.GRAPHS))
    found = differing("testapp.Errand", fleet.versions(Errand), *GRAPHS)
    return [f"{each.where}: {each.sentence}." for each in found]


def test_worker_publishes_the_graphs_that_it_runs():
    class OfWorker:
        kinds = [operations_of(Errand), operations_of(Step)]

    found = published_by(OfWorker())["stator"]
    assert set(found["graphs"]) == {LABEL, "testapp.step"}
    assert found["states"][LABEL] == dict(fingerprints(ErrandGraph))


def test_fleet_of_one_version_or_one_that_is_not_understood_is_no_alarm(django_assert_max_num_queries):
    for number in range(1, 4):
        live(number)
    # Some run only another model, one publishes nothing, and those of other code have ended or are dead.
    live(4, NewerGraph, label="testapp.step")
    live(5, None)
    raw(Worker).filter(pk=live(6, NewerGraph).pk).update(stopped=ago(1))
    raw(Worker).filter(pk=live(7, NewerGraph).pk).update(heartbeat=ago(60))
    for number, published in enumerate(NONSENSE, start=8):
        raw(Worker).filter(pk=live(number).pk).update(published=published)
    with django_assert_max_num_queries(1):
        assert told() == []


def test_versions_are_told_with_their_workers_and_with_what_only_some_know(django_assert_max_num_queries):
    for number in range(1, 8):
        live(number, NewerGraph)
    live(8, OlderGraph, host="ash")
    live(9)
    with django_assert_max_num_queries(2):
        [sentence] = told()
    assert sentence == (
        "testapp.Errand: 3 versions of its graph run, so a process leaves alone what only others know: ash/8 knows "
        "posted; oak/1, oak/2, oak/3, oak/4, oak/5 and 2 more "
        "know asked, checked, done, heir, limited and 2 more; oak/9, this process know asked, done, heir, limited, "
        "outside and 1 more; new differs in options or transitions."
    )


def test_workers_that_all_differ_from_this_process_are_told():
    live(1, NewerGraph)
    assert told() == [
        "testapp.Errand: 2 versions of its graph run, so a process leaves alone what only others know: oak/1 knows "
        "checked; this process does not; "
        "limited, new differ in options or transitions."
    ]


def test_object_in_a_state_of_newer_workers_waits_for_them():
    live(3, NewerGraph)
    live(4, NewerGraph)
    live(5)
    errand = of_another("checked")
    [reason] = errand.explain()
    assert (reason.code, reason.numbers["workers"]) == ("other_version", ["oak/3", "oak/4"])
    assert reason.sentence == (
        "State 'checked' is not in the graph of this process; workers oak/3, oak/4 know it, so the object waits for "
        "one of them."
    )
    assert explain_counts(Errand.objects.all()) == {"other_version": 1}
    raw(Worker).filter(pid__lt=5).update(stopped=ago(1))
    assert [reason.code for reason in errand.explain()] == ["unknown_state"]
    assert explain_counts(Errand.objects.all()) == {"unknown_state": 1}
