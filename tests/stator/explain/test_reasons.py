"""Each cause has a fixture where it is said first, and whatever does not move is told why."""

import itertools
import re
from datetime import timedelta
from pathlib import Path

import pytest
from django.db.models.functions import Now

from stator.conf import load_settings
from stator.db.interface import new_token, new_worker_id
from stator.explain import explain, explain_counts
from stator.explain.reasons import REASONS
from stator.models import Pause, Report, Worker
from stator.rows.columns import parking
from stator.rows.pauses import pause_objects
from tests.stator.making import ago, change, put, raw
from tests.testapp.explained import Errand
from tests.testapp.keys import UuidKeyed
from tests.testapp.waiting import Build, Rollout

pytestmark = pytest.mark.django_db

WORKER = new_worker_id()
FREE = {"state_ready": False, "state_claim": None, "state_locked_until": None}
GUIDE = Path(__file__).parents[3] / "docs/guides/stuck.rst"
REMEDIES = {entry.code: entry.remedy for entry in REASONS}


@pytest.fixture
def crew():
    """A live worker that serves the model."""
    return Worker.objects.create(
        id=WORKER, host="oak", pid=4242, version="1", models=["testapp.errand"], database="default"
    )


def held(by=WORKER, seconds=60):
    """The columns of a row that a worker holds."""
    return {
        "state_ready": False, "state_claim": new_token(by), "state_locked_until": ago(-seconds),
        "state_attempted": ago(5),
    }  # fmt: skip


def report(errand, **values):
    values = {"state": errand.state, **values}
    return Report.objects.create(model_label="testapp.errand", object_pk=str(errand.pk), **values)


def first(errand):
    return errand.explain()[0]


def codes(errand):
    return [reason.code for reason in errand.explain()]


def test_terminal(crew):
    assert str(first(put(Errand, state="done"))) == "done is a terminal state: the object stays here."
    reason = first(put(Errand, state="swept", state_changed=ago(600)))
    assert reason.code == "terminal"
    assert reason.numbers["deleted_in"] == pytest.approx(3000, abs=5)


def test_external_with_and_without_its_timeout(crew):
    reason = first(put(Errand, state="outside", state_changed=ago(86400 - 5)))
    assert reason.code == "external"
    assert "it times out to done in 2 d" in reason.sentence
    assert reason.numbers["times_out_in"] == pytest.approx(2 * 86400, abs=10)
    assert "timed out 2 s ago" in first(put(Errand, state="outside", state_changed=ago(3 * 86400 + 2.5))).sentence
    reason = first(put(Errand, state="asked"))
    assert (reason.code, reason.numbers) == ("external", {})
    assert "once a condition holds" in reason.sentence


def test_paused_by_whom_until_when_and_why(crew):
    errand = put(Errand, tenant=3)
    Errand.stator.pause("new", {"tenant": 3}, reason="moving house", actor="ada", seconds=240)
    reason = first(errand)
    assert re.fullmatch(r"Paused by ada: new where tenant=3, for another 3 m \d+ s: moving house\.", reason.sentence)
    assert (reason.code, reason.numbers["actor"], reason.numbers["reason"]) == ("paused", "ada", "moving house")
    assert reason.numbers["until"] == pytest.approx(240, abs=5)
    assert codes(put(Errand, tenant=4)) == ["in_line"]
    assert codes(put(Errand, state="heir", tenant=3)) == ["in_line"]


def test_unknown_state_and_the_one_that_was_renamed(crew):
    errand = put(Errand)
    change(errand, state="mislaid")
    reason = first(raw(Errand).get())
    assert reason.code == "unknown_state"
    assert "declare renamed_from='mislaid'" in reason.sentence
    change(errand, state="former")
    assert "the former name of heir" in first(raw(Errand).get()).sentence


def test_quarantined_with_the_last_report(crew):
    errand = put(Errand, state_crashes=3, state_ready=False)
    report(errand, error="stator.Quarantined", message="3 leases in a row")
    reason = first(errand)
    assert (reason.code, reason.numbers["crashes"]) == ("quarantined", 3)
    assert reason.sentence.endswith("Latest report: stator.Quarantined: 3 leases in a row.")


def test_not_due(crew):
    reason = first(put(Errand, state_ready=False, state_next_attempt=ago(-245)))
    assert reason.code == "not_due"
    assert re.fullmatch(r"Not due yet: the next attempt is in 4 m( \d s)?\.", reason.sentence)
    assert reason.numbers["next_attempt_in"] == pytest.approx(245, abs=5)


def test_what_the_handler_last_said(crew):
    errand = put(Errand, state_ready=False, state_next_attempt=ago(-60))
    report(errand, message="DNS not propagated", times=12)
    assert str(first(errand)) == 'Waiting because its handler said "DNS not propagated" (12 times).'
    assert codes(errand) == ["last_said", "not_due"]
    Report.objects.update(state="heir")
    assert codes(errand) == ["not_due"]


def test_reason_of_an_attempt_before_the_latest_is_over(crew):
    """As of a schedule that waited for a queue and has fired since."""
    errand = put(Errand, state_ready=False, state_next_attempt=ago(-60))
    report(errand, message="the queue takes no tasks")
    change(errand, state_attempted=ago(30))
    Report.objects.update(at=ago(20))
    assert codes(errand) == ["last_said", "not_due"]
    assert Errand.stator.explain_counts() == {"last_said": 1}
    change(errand, state_attempted=ago(10))
    assert codes(errand) == ["not_due"]
    assert Errand.stator.explain_counts() == {"not_due": 1}


def test_backoff_after_errors(crew):
    errand = put(Errand, state_ready=False, state_next_attempt=ago(-90), state_failures=3)
    report(errand, error="OSError", message="no route to host")
    reason = first(errand)
    assert re.fullmatch(
        r"Backing off after 3 errors, the last one OSError: no route to host; next attempt in 1 m \d+ s\.",
        reason.sentence,
    )
    assert (reason.code, reason.numbers["failures"], reason.numbers["error"]) == ("backoff", 3, "OSError")


def test_leased_by_a_worker_that_is_known(crew):
    raw(Worker).update(heartbeat=Now() - timedelta(seconds=2))
    reason = first(put(Errand, **held()))
    assert reason.code == "leased"
    assert re.match(rf"Leased by worker {WORKER} \(process 4242 on oak, heartbeat 2 s ago\) since 5 s", reason.sentence)
    assert (reason.numbers["worker"], reason.numbers["host"], reason.numbers["pid"]) == (WORKER, "oak", 4242)
    assert reason.numbers["until"] == pytest.approx(60, abs=5)


def test_leased_by_a_worker_of_which_nothing_is_known():
    other = new_worker_id()
    reason = first(put(Errand, **held(other)))
    assert reason.code == "leased"
    assert f"worker {other} (no other record of it)" in reason.sentence


def test_lost_lease(crew):
    reason = first(put(Errand, **held(seconds=-7)))
    assert reason.code == "lease_lost"
    assert reason.sentence.endswith("ran out 7 s ago; the object is reclaimed within 5 s.")
    assert reason.numbers["within"] == load_settings().REAP_INTERVAL


def test_lost_lease_waits_for_a_worker_where_there_is_none():
    lost, no_worker = put(Errand, **held(seconds=-7)).explain()
    assert lost.sentence.endswith("ran out 7 s ago; the object is reclaimed once a worker is started.")
    assert (lost.code, no_worker.code) == ("lease_lost", "no_worker")
    assert [reason.code for reason in put(Errand, **held(seconds=60)).explain()] == ["leased"]


def test_reasons_say_what_to_do():
    reason = first(put(Errand))
    assert (reason.code, reason.remedy) == ("no_worker", REMEDIES["no_worker"])
    assert reason.as_dict()["remedy"] == REMEDIES["no_worker"]


def test_limit_of_the_state(crew):
    put(Errand, state="limited", **held())
    reason = first(put(Errand, state="limited"))
    assert str(reason) == "limited is at its limit: 1 of 1 are claimed."
    assert (reason.code, reason.numbers) == ("at_limit", {"state": "limited", "claimed": 1, "limit": 1})


def test_place_in_line_is_counted_up_to_a_bound(crew, monkeypatch):
    errands = [put(Errand, state_changed=ago(100 - number)) for number in range(5)]
    assert [str(first(errand)) for errand in errands[:3]] == [
        "Ready, and next in line.", "Ready, with 1 object before it.", "Ready, with 2 objects before it.",
    ]  # fmt: skip
    monkeypatch.setattr("stator.explain.facts.LINE", 3)
    monkeypatch.setattr("stator.explain.sentences.LINE", 3)
    reason = first(errands[4])
    assert (str(reason), reason.numbers) == ("Ready, with more than 3 objects before it.", {"more_than": 3})
    limited = put(Errand, state="limited")
    assert first(limited).numbers == {"ahead": 0}


def test_due_but_not_marked_ready(crew):
    assert first(put(Errand, state_ready=False, state_next_attempt=ago(1))).code == "due"


def test_lost_leases_before_the_quarantine(crew):
    assert codes(put(Errand, state_crashes=1)) == ["in_line"]
    assert codes(put(Errand, state_crashes=2)) == ["crashed", "in_line"]


@pytest.mark.parametrize(
    "values", [{"stopped": Now()}, {"heartbeat": Now() - timedelta(seconds=31)}, {"models": ["testapp.line"]}]
)
def test_no_live_worker(crew, values):
    errand = put(Errand)
    assert first(errand).code == "in_line"
    raw(Worker).update(**values)
    reason = first(errand)
    assert reason.code == "no_worker"
    assert "No live worker serves testapp.Errand" in reason.sentence


def test_gone():
    errand = put(Errand)
    raw(Errand).all().delete()
    assert codes(errand) == ["gone"]


def test_expired_pauses_end_by_themselves(crew):
    errand = put(Errand)
    pause = Errand.stator.pause(seconds=60)
    assert first(errand).code == "paused"
    raw(Pause).filter(pk=pause.pk).update(until=ago(1))
    assert first(errand).code == "in_line"


def test_keys_that_are_no_numbers_are_explained_and_counted(crew):
    keyed = put(UuidKeyed, state_ready=False, state_next_attempt=ago(-60))
    Report.objects.create(
        model_label="testapp.uuidkeyed", object_pk=str(keyed.pk), state=keyed.state, message="not yet"
    )
    assert keyed.explain()[0].code == "last_said"
    assert UuidKeyed.stator.explain_counts() == {"last_said": 1}


def at_the_limit():
    put(Errand, state="limited", **held())
    return put(Errand, state="limited")


def without_workers():
    raw(Worker).update(stopped=Now())
    return put(Errand)


def paused():
    errand = put(Errand)
    Errand.stator.pause("new")
    return errand


def left_behind():
    errand = put(Errand)
    change(errand, state="mislaid")
    return errand


def told_to_wait():
    errand = put(Errand, state_ready=False, state_next_attempt=ago(-60))
    report(errand, message="not yet")
    return errand


def of_a_newer_worker():
    """Such a worker is live, and the object has got there."""
    published = {"stator": {"graphs": {"testapp.errand": "newer"}, "states": {"testapp.errand": {"checked": "1"}}}}
    raw(Worker).update(published=published)
    errand = put(Errand)
    change(errand, state="checked")
    return errand


# An object for each entry of the table, for which it is the first that holds.
EXAMPLES = {
    "terminal": lambda: put(Errand, state="done"),
    "other_version": of_a_newer_worker,
    "unknown_state": left_behind,
    "lease_lost": lambda: put(Errand, **held(seconds=-7)),
    "leased": lambda: put(Errand, **held()),
    "quarantined": lambda: put(Errand, state_crashes=3),
    "paused": paused,
    "external": lambda: put(Errand, state="outside"),
    "waits_for": lambda: put(Rollout, build=put(Build)),
    "backoff": lambda: put(Errand, state_ready=False, state_next_attempt=ago(-60), state_failures=1),
    "last_said": told_to_wait,
    "not_due": lambda: put(Errand, state_ready=False, state_next_attempt=ago(-60)),
    "no_worker": without_workers,
    "crashed": lambda: put(Errand, state_crashes=2),
    "at_limit": at_the_limit,
    "in_line": lambda: put(Errand),
    "due": lambda: put(Errand, state_ready=False),
}


def test_every_entry_has_an_example_a_remedy_and_a_line_in_the_guide():
    assert list(EXAMPLES) == list(REMEDIES) == [entry.code for entry in REASONS]
    assert all(REMEDIES.values())
    # Tasks have a table of their own.
    of_every_object, heading, _ = GUIDE.read_text().partition("\nWho serves a task\n")
    assert heading
    assert set(re.findall(r"^``(\w+)``  ", of_every_object, re.MULTILINE)) == {"gone", *REMEDIES}


@pytest.mark.parametrize("code", [entry.code for entry in REASONS])
def test_first_reason_of_an_object_is_the_one_under_which_it_is_counted(code, crew):
    row = EXAMPLES[code]()
    assert row.explain()[0].code == code
    assert explain_counts(type(row).objects.filter(pk=row.pk)) == {code: 1}


def situations():
    """Every combination of what may be said of a row, in every state, in paused models and others."""
    lists = (
        ["new", "limited", "outside", "asked", "heir", "done", "swept", "former", "mislaid"],
        ["ready", "early", "due", "waiting", "leased", "expired"],
        [(0, 0, ""), (0, 0, "reason"), (2, 0, "error"), (0, 1, ""), (0, 3, "error"), (2, 3, "")],
    )
    return itertools.product(*lists)


def made(state, standing, past):
    """A row in a situation."""
    failures, crashes, said = past
    columns = {**FREE, "state_failures": failures, "state_crashes": crashes}
    columns |= {
        "ready": {"state_ready": True},
        "early": {"state_ready": True, "state_next_attempt": ago(-600)},
        "due": {"state_next_attempt": ago(60)},
        "waiting": {"state_next_attempt": ago(-600)},
        "leased": held(seconds=600),
        "expired": held(seconds=-60),
    }[standing]
    errand = raw(Errand).create(tenant=crashes)
    change(errand, state=state, **columns)
    errand = raw(Errand).get(pk=errand.pk)
    if said:
        report(errand, message="words", error="OSError" if said == "error" else "")
    return errand


def true_of(reason, errand):
    """Whether a reason is borne out by the row itself."""
    state = errand.state_graph.states.get(errand.state)
    automatic = state is not None and state.automatic
    claimed, due = errand.state_claim is not None, errand.state_next_attempt
    waits = automatic and not claimed and due is not None and due > ago(0)
    truths = {
        "terminal": state is not None and state.terminal,
        "unknown_state": state is None,
        "external": state is not None and not state.terminal and not state.automatic,
        "leased": claimed and errand.state_locked_until > ago(0),
        "lease_lost": claimed and errand.state_locked_until <= ago(0),
        "quarantined": automatic and errand.state_crashes >= 3,
        "backoff": waits and errand.state_failures > 0,
        "last_said": waits and errand.state_failures == 0,
        "not_due": waits and errand.state_failures == 0,
        "paused": automatic and Pause.objects.active().exists(),
        "no_worker": not Worker.objects.live().exists(),
        "crashed": errand.state_ready and errand.state_crashes > 1,
        "at_limit": errand.state == "limited" and Errand.stator.in_state("limited").leased().exists(),
        "in_line": automatic and errand.state_ready and not waits,
        "due": automatic and not errand.state_ready and due is not None and due <= ago(0),
    }
    return truths[reason.code]


@pytest.mark.parametrize(
    "pause",
    [None, {"state": "new"}, {"where": {"tenant__gt": 0}}, {"state": "outside", "where": {"tenant__gt": 0}}, {}],
)
@pytest.mark.parametrize("worked_on", [True, False])
def test_every_object_that_does_not_move_has_true_reasons_and_is_counted_under_the_first(pause, worked_on, request):
    if worked_on:
        request.getfixturevalue("crew")
        # However long the machine takes for this.
        raw(Worker).update(heartbeat=ago(-3600))
    errands = [made(*situation) for situation in situations()][:: 1 if worked_on else 7]
    if pause is not None:
        Errand.stator.pause(**pause)
    firsts = {}
    for errand in errands:
        reasons = errand.explain()
        assert reasons
        for reason in reasons:
            assert true_of(reason, errand), (reason, vars(errand))
        firsts[reasons[0].code] = firsts.get(reasons[0].code, 0) + 1
    assert explain_counts(Errand.objects.filter(pk__in=[errand.pk for errand in errands])) == firsts


def made_to_wait(state, standing, past, builds):
    """A rollout in a situation that may wait for one or two others."""
    failures, crashes, said = past
    columns = {**FREE, "state_failures": failures, "state_crashes": crashes}
    columns |= {
        "ready": {"state_ready": True},
        "early": {"state_ready": True, "state_next_attempt": ago(-600)},
        "parked": parking(),
        "due": {"state_next_attempt": ago(60)},
        "waiting": {"state_next_attempt": ago(-600)},
        "leased": held(seconds=600),
        "expired": held(seconds=-60),
    }[standing]
    rollout = raw(Rollout).create(**builds)
    change(rollout, state=state, **columns)
    if said:
        Report.objects.create(
            model_label="testapp.rollout", object_pk=str(rollout.pk), state=state, message="words",
            error="OSError" if said == "error" else "",
        )  # fmt: skip
    return raw(Rollout).get(pk=rollout.pk)


def is_held_up(rollout):
    build, after = rollout.build, rollout.after
    return bool(build and build.state == "compiling") or bool(after and after.state != "done")


@pytest.mark.parametrize("worked_on", [True, False])
def test_objects_that_wait_for_others_say_so_exactly_while_they_do(worked_on, crew):
    raw(Worker).update(heartbeat=ago(-3600), models=["testapp.rollout"] if worked_on else [])
    made, built = put(Build), put(Build, state="built")
    done, undone = put(Rollout, state="done"), put(Rollout, state="stale")
    builds = [{}, *({"build": build, "after": after} for build in (made, built) for after in (None, undone, done))]
    standings = ["ready", "early", "parked", "due", "waiting", "leased", "expired"]
    pasts = [(0, 0, ""), (0, 0, "reason"), (2, 0, "error"), (0, 1, ""), (0, 3, "error")]
    firsts = {"terminal": 2}
    for situation in itertools.product(["new", "started", "done", "mislaid"], standings, pasts, builds):
        rollout = made_to_wait(*situation)
        codes = [reason.code for reason in rollout.explain()]
        attempted = rollout.state in ("new", "started") and rollout.state_claim is None and rollout.state_crashes < 3
        assert ("waits_for" in codes) == (attempted and is_held_up(rollout)), (codes, vars(rollout))
        assert codes
        firsts[codes[0]] = firsts.get(codes[0], 0) + 1
    assert Rollout.stator.explain_counts() == firsts


@pytest.mark.parametrize(
    "columns",
    [{}, {"state": "limited"}, {"state": "done"}, held(), {"state_ready": False, "state_next_attempt": ago(-60)}],
)
def test_at_most_five_statements(crew, columns, django_assert_max_num_queries):
    errand = put(Errand, tenant=3, **columns)
    Errand.stator.pause(where={"tenant": 4})
    Errand.stator.pause(where={"tenant__lt": 0})
    with django_assert_max_num_queries(5):
        explain(Errand, errand.pk)


def test_counts_take_a_handful_of_statements_whatever_the_number(crew, django_assert_max_num_queries):
    for tenant in range(20):
        put(Errand, tenant=tenant)
    Errand.stator.pause(where={"tenant__lt": 5})
    with django_assert_max_num_queries(4):
        assert Errand.stator.explain_counts() == {"in_line": 15, "paused": 5}
    assert explain_counts(Errand.objects.filter(tenant__in=[1, 2, 9])) == {"paused": 2, "in_line": 1}
    assert explain_counts(Errand.objects.none()) == {}


def test_pause_of_named_objects_is_told_of_the_object_and_not_as_a_lookup(crew):
    errand, other = put(Errand), put(Errand)
    pause_objects(Errand, "default", [errand.pk, other.pk], actor="anna", reason="asked", seconds=None)
    assert str(first(errand)) == "Paused by anna: this object, until it is resumed: asked."
