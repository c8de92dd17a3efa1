"""Each cause has a fixture where it is said first, and whatever does not move is told why."""

import itertools

import pytest
from django.db.models.functions import Now

from stator.extensions.problems.kinds import KINDS
from stator.extensions.problems.reasons import explain, explain_counts
from stator.extensions.related.waits import parking
from stator.models import Pause, Report, Worker
from tests.stator.explain.errands import held, report
from tests.stator.making import ago, change, put, raw
from tests.testapp.approvals import Expense
from tests.testapp.baskets import Basket
from tests.testapp.explained import Errand
from tests.testapp.mails import Postcard
from tests.testapp.shadowed import Flyer
from tests.testapp.waiting import Build, Rollout

pytestmark = pytest.mark.django_db

FREE = {"state_ready": False, "state_claim": None, "state_locked_until": None}
REMEDIES = {kind.code: kind.remedy for kind in KINDS if kind.sentences and kind.rows}


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
    "unmanaged": lambda: Postcard.objects.create(status=None),
    "other_version": of_a_newer_worker,
    "unknown_state": left_behind,
    "lease_lost": lambda: put(Errand, **held(seconds=-7)),
    "leased": lambda: put(Errand, **held()),
    "quarantined": lambda: put(Errand, state_crashes=3),
    "paused": paused,  # stator.extensions.pauses
    "awaits_related": lambda: put(Basket, state="collecting"),
    "awaits_event": lambda: put(Expense),  # stator.extensions.events
    "external": lambda: put(Errand, state="outside"),
    "shadow": lambda: put(Flyer, state="queued"),  # stator.extensions.shadow
    "waits_for": lambda: put(Rollout, build=put(Build)),
    "backoff": lambda: put(Errand, state_ready=False, state_next_attempt=ago(-60), state_failures=1),
    "last_said": told_to_wait,  # stator.extensions.reports
    "not_due": lambda: put(Errand, state_ready=False, state_next_attempt=ago(-60)),
    "no_worker": without_workers,
    "crashed": lambda: put(Errand, state_crashes=2),
    "at_limit": at_the_limit,  # stator.extensions.limits
    "in_line": lambda: put(Errand),
    "due": lambda: put(Errand, state_ready=False),
}


def test_every_entry_has_an_example_and_a_remedy():
    assert list(EXAMPLES) == list(REMEDIES), f"EXAMPLES has this order: {', '.join(REMEDIES)}"
    assert all(REMEDIES.values())


@pytest.mark.parametrize("code", [*REMEDIES])
def test_first_reason_of_an_object_is_the_one_under_which_it_is_counted(code, crew):
    row = EXAMPLES[code]()
    assert row.explain()[0].code == code
    assert explain_counts(type(row).objects.filter(pk=row.pk)) == {code: 1}


def situations():
    """Every combination of what may be said of a row, in every state."""
    lists = (
        ["new", "limited", "outside", "asked", "heir", "done", "swept", "former", "mislaid"],
        ["ready", "early", "due", "waiting", "leased", "expired"],
        [(0, 0, ""), (0, 0, "reason"), (2, 0, "error"), (0, 1, ""), (0, 3, "error"), (2, 3, "")],
    )
    return itertools.product(*lists)


def made(model, state, standing, past, **given):
    """A row in a situation."""
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
    instance = raw(model).create(**given)
    change(instance, state=state, **columns)
    if said:
        Report.objects.create(
            model_label=model._meta.label_lower, object_pk=str(instance.pk), state=state, message="words",
            error="OSError" if said == "error" else "",
        )  # fmt: skip
    return raw(model).get(pk=instance.pk)


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
    ("worked_on", "pause"),
    [
        (True, None),
        (True, {"where": {"tenant": 1}}),
        (False, {"state": "new"}),
    ],
)
def test_every_object_that_does_not_move_has_true_reasons_and_is_counted_under_the_first(pause, worked_on, request):
    if worked_on:
        request.getfixturevalue("crew")
        # However long the machine takes for this.
        raw(Worker).update(heartbeat=ago(-3600))
    # Of all that meet, every fifth: each pair of values is among them.
    situated = [*situations()][::5]
    errands = [made(Errand, *situation, tenant=situation[-1][1]) for situation in situated]
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


def is_held_up(rollout):
    build, after = rollout.build, rollout.after
    return bool(build and build.state == "compiling") or bool(after and after.state != "done")


def test_objects_that_wait_for_others_say_so_exactly_while_they_do(crew):
    raw(Worker).update(heartbeat=ago(-3600), models=["testapp.rollout"])
    building, built = put(Build), put(Build, state="built")
    done, undone = put(Rollout, state="done"), put(Rollout, state="stale")
    builds = [{}, *({"build": build, "after": after} for build in (building, built) for after in (None, undone, done))]
    standings = ["ready", "early", "parked", "due", "waiting", "leased", "expired"]
    pasts = [(0, 0, ""), (2, 1, "error"), (0, 3, "error")]
    states = ["new", "started", "done", "mislaid"]
    # Of all that meet, every fifth: each pair of values is among them.
    situations = [*itertools.product(states, standings, pasts, builds)][::5]
    rollouts = [made(Rollout, *each[:3], **each[3]) for each in situations]
    firsts = {"terminal": 2}
    for rollout in rollouts:
        codes = codes_of(rollout)
        assert codes
        firsts[codes[0]] = firsts.get(codes[0], 0) + 1
    assert Rollout.stator.explain_counts() == firsts
    # Nor is it otherwise where no worker works on the model.
    raw(Worker).update(models=[])
    for rollout in rollouts[::11]:
        codes_of(rollout)


def codes_of(rollout):
    """The codes of its reasons, among which is that it waits exactly if it does."""
    codes = [reason.code for reason in rollout.explain()]
    attempted = rollout.state in ("new", "started") and rollout.state_claim is None and rollout.state_crashes < 3
    assert ("waits_for" in codes) == (attempted and is_held_up(rollout)), (codes, vars(rollout))
    return codes


# Facts about objects, one or many, are read in few statements


@pytest.mark.parametrize("columns", [{"state": "limited"}, {"state_ready": False, "state_next_attempt": ago(-86400)}])
def test_at_most_eight_statements(crew, columns, django_assert_max_num_queries):
    put(Errand, tenant=3, **columns)
    errand = put(Errand, tenant=3, **columns)
    Errand.stator.pause(where={"tenant": 4})
    Errand.stator.pause(where={"tenant": 5})
    with django_assert_max_num_queries(8):
        explain(Errand, errand.pk)


# Conditions for many rows are counted in few statements


def test_counts_take_a_handful_of_statements_whatever_the_number(crew, django_assert_max_num_queries):
    for tenant in range(20):
        put(Errand, tenant=tenant)
    for tenant in range(5):
        Errand.stator.pause(where={"tenant": tenant})
    with django_assert_max_num_queries(4):
        assert Errand.stator.explain_counts() == {"in_line": 15, "paused": 5}
    assert explain_counts(Errand.objects.filter(tenant__in=[1, 2, 9])) == {"paused": 2, "in_line": 1}
    assert explain_counts(Errand.objects.none()) == {}
