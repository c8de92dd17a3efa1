"""Objects whose watched fields change are looked at again."""

import pytest
from django.db import DatabaseError
from django.db.models import Case, F, QuerySet, Value, When

from stator.conf import Settings
from stator.db import operations_for
from stator.db.interface import new_worker_id
from stator.graph.outcomes import Moved
from stator.models import History
from stator.rows import locking
from stator.runner import StatorRunner
from tests.stator.making import ago, raw
from tests.testapp.power import Plan, Site, SiteGraph, Spec

pytestmark = pytest.mark.django_db


def settled(**values):
    site = Site.objects.create(**{"domain": "a", **values})
    QuerySet(Site).filter(pk=site.pk).update(state="serving", state_ready=False)
    return Site.objects.get(pk=site.pk)


def state_of(site):
    return Site.objects.values_list("state", "state_version").get(pk=site.pk)


@pytest.mark.parametrize("change", [{"visits": 5}, {"domain": "a"}, {}])
def test_nothing_happens_without_a_change_of_a_watched_field(change):
    site = settled()
    for name, value in change.items():
        setattr(site, name, value)
    site.save()
    Site.objects.filter(pk=site.pk).update(**(change or {"visits": F("visits")}))
    assert state_of(site) == ("serving", 0)


def test_fields_that_are_not_saved_do_not_count():
    site = settled()
    site.domain = "b"
    site.save(update_fields=["visits"])
    assert state_of(site) == ("serving", 0)
    site.save(update_fields=["domain"])
    assert state_of(site) == ("checking", 1)


@pytest.mark.parametrize("load", [lambda pk: Site(pk=pk), lambda pk: Site.objects.only("visits").get(pk=pk)])
def test_value_that_was_not_loaded_is_compared_with_that_of_the_row(load):
    site = settled()
    for domain, state in (("a", ("serving", 0)), ("b", ("checking", 1))):
        given = load(site.pk)
        given.domain = domain
        given.save()
        assert state_of(site) == state


def test_relation_is_watched_by_either_name():
    plan = Plan.objects.create(name="big")
    first, second, third = settled(), settled(), settled()
    first.plan = plan
    first.save()
    Site.objects.filter(pk=second.pk).update(plan=plan)
    Site.objects.filter(pk=third.pk).update(plan_id=plan.pk)
    assert [state_of(site)[0] for site in (first, second, third)] == ["checking"] * 3


def test_update_looks_again_at_the_rows_that_really_change():
    same, other, empty = settled(domain="b"), settled(domain="a"), settled(domain=None)
    assert Site.objects.all().update(domain="b", visits=7) == 3
    assert [state_of(site)[0] for site in (same, other, empty)] == ["serving", "checking", "checking"]
    assert set(Site.objects.values_list("domain", "visits")) == {("b", 7)}
    Site.objects.update(domain=None)
    assert state_of(same)[0] == "checking"


def test_expression_that_changes_nothing_is_no_change():
    site = settled()
    for value in (Value("a"), F("domain"), Case(When(visits=0, then=Value("a")), default=Value("b"))):
        assert Site.objects.update(domain=value) == 1
        assert state_of(site) == ("serving", 0)


def test_bulk_update_looks_again_at_the_objects_that_really_change():
    sites = [settled(domain=None if number == 7 else f"{number}") for number in range(20)]
    sites[3].domain = "other"
    Site.objects.bulk_update(sites, ["domain", "plan", "visits"])
    assert [state_of(site)[0] for site in sites].count("checking") == 1
    assert state_of(sites[3]) == ("checking", 1)
    sites[3].save()
    assert state_of(sites[3]) == ("checking", 1)


# Values that can be changed in place


@pytest.fixture
def spec():
    made = Spec.objects.create(wishes={"hosts": ["a"], "by": {"name": "x"}}, paper="one.txt")
    QuerySet(Spec).update(state="applied", state_ready=False)
    return Spec.objects.get(pk=made.pk)


def version(spec):
    return Spec.objects.values_list("state_version", flat=True).get(pk=spec.pk)


CHANGES = [
    lambda spec: spec.wishes["hosts"].append("b"),
    lambda spec: spec.wishes["by"].update(name="y"),
    lambda spec: setattr(spec.paper, "name", "two.txt"),
]


@pytest.mark.parametrize("loaded", ["get", "refresh", "deferred", "saved"])
def test_value_that_is_changed_in_place_is_a_change(spec, loaded):
    if loaded == "refresh":
        spec.refresh_from_db()
    elif loaded == "deferred":
        spec = Spec.objects.defer("wishes", "paper").get()
    elif loaded == "saved":
        spec.save()
    assert (spec.wishes["hosts"], spec.paper.name) == (["a"], "one.txt")
    spec.save()
    for number, change in enumerate(CHANGES):
        assert version(spec) == number
        change(spec)
        spec.save()
        assert version(spec) == number + 1
        raw(Spec).update(state="applied", state_ready=False)
        spec.refresh_from_db(fields=["state"])
        spec.save()


def test_equal_value_is_no_change(spec):
    same = {"wishes": {"hosts": ["a"], "by": {"name": "x"}}, "paper": "one.txt"}
    for name, value in same.items():
        setattr(spec, name, value)
    spec.save()
    Spec.objects.update(**same)
    Spec.objects.bulk_update([spec], ["wishes", "paper"])
    assert version(spec) == 0


@pytest.mark.django_db(transaction=True)
def test_update_is_of_all_rows_or_of_none(monkeypatch):
    monkeypatch.setattr(locking, "BATCH", 1)
    first, second = settled(), settled(visits=1)
    by_visits = Case(When(visits=1, then=None), default=Value("b"))
    with pytest.raises((DatabaseError, OverflowError)):
        Site.objects.update(domain=by_visits, visits=Case(When(visits=1, then=2**80), default=Value(5)))
    assert [state_of(site)[0] for site in (first, second)] == ["serving", "serving"]
    assert set(Site.objects.values_list("domain", "visits")) == {("a", 0), ("a", 1)}


def test_attempt_that_began_before_the_change_is_refused():
    site = Site.objects.create(domain="a")
    operations = operations_for(Site, Settings(), new_worker_id())
    (claim,) = operations.claim(list(SiteGraph.automatic_states), 1)
    Site.objects.filter(pk=site.pk).update(domain="b")
    assert operations.record([(claim, Moved(SiteGraph.serving))]).lost == [claim]
    assert StatorRunner([Site]).run_single_cycle() == 1


def test_handler_that_writes_a_watched_field_keeps_its_claim():
    site = Site.objects.create(domain="a")
    operations = operations_for(Site, Settings(), new_worker_id())
    (claim,) = operations.claim(list(SiteGraph.automatic_states), 1)
    claim.instance.__dict__["stator"] = claim
    claim.instance.domain = "b"
    claim.instance.save()
    assert operations.record([(claim, Moved(SiteGraph.serving))]).lost == []
    assert state_of(site)[0] == "serving"


@pytest.mark.parametrize("how", ["save", "update", "bulk_update"])
@pytest.mark.parametrize("state", ["serving", "checking"])
def test_every_way_to_write_looks_again_once(how, state):
    site = settled()
    QuerySet(Site).filter(pk=site.pk).update(state=state, state_next_attempt=ago(-600))
    site = Site.objects.get(pk=site.pk)
    site.domain = "b"
    if how == "save":
        site.save()
    elif how == "update":
        Site.objects.filter(pk=site.pk).update(domain="b")
    else:
        Site.objects.bulk_update([site], ["domain"])
    found = Site.objects.get(pk=site.pk)
    assert (found.state, found.state_version, found.state_ready) == ("checking", int(state == "serving"), True)
    assert (found.domain, found.state_next_attempt) == ("b", None)
    assert [kept.reason for kept in History.objects.all()] == ["domain changed"] * (state == "serving")
    assert StatorRunner([Site]).run_single_cycle() == 1
    assert state_of(site)[0] == "serving"


def test_delay_of_the_first_attempt_stays(monkeypatch):
    monkeypatch.setattr(SiteGraph.checking, "attempt_immediately", False)
    site = settled()
    site.domain = "b"
    site.save()
    found = Site.objects.get(pk=site.pk)
    assert (found.state, found.state_version, found.state_ready) == ("checking", 1, False)
    assert ago(-3500) < found.state_next_attempt < ago(-3700)


def test_external_state_is_left_to_whoever_moves_it():
    site = Site.objects.create(domain="a", state="parked")
    site.domain = "b"
    site.save()
    assert state_of(site) == ("parked", 0)


def test_move_by_hand_in_the_same_save_stands():
    site = Site.objects.create(domain="a")
    site.domain, site.state = "b", SiteGraph.serving
    site.save()
    assert state_of(site) == ("serving", 1)
