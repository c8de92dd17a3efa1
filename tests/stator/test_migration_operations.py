"""The trigger that notices raw SQL: it does what ``save()`` and ``update()`` do, and never a second time."""

import pytest
from django.apps import apps
from django.db import DatabaseError, connection, transaction
from django.db.migrations.state import ProjectState
from django.db.migrations.writer import MigrationWriter, OperationWriter

from stator.checks.databases import check_triggers
from stator.graph.outcomes import Moved
from stator.migration_operations import TRIGGER, ReconcileTrigger, StorageParameters, function_name
from stator.models import History
from stator.rows.meta import options_of
from stator.testing import drain
from tests.stator.making import ago, change, claim_all, operations_of, put, raw, row
from tests.testapp.power import Order, Plan, Site, SiteGraph

pytestmark = pytest.mark.django_db
on_postgresql = pytest.mark.postgresql


def migrate(operation, backwards=False):
    state = ProjectState.from_apps(apps)
    with connection.schema_editor() as editor:
        method = operation.database_backwards if backwards else operation.database_forwards
        method("testapp", editor, state, state)


@pytest.fixture
def trigger():
    """The trigger of the model, as its code asks for it."""
    operation = ReconcileTrigger.of(Site)
    migrate(operation)
    return operation


def sql(statement, *params):
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else None


def write(site, **values):
    columns = ", ".join(f"{name} = %s" for name in values)
    sql(f"UPDATE testapp_site SET {columns} WHERE id = %s", *values.values(), site.pk)


def settled(**values):
    return put_in("serving", state_ready=False, **values)


def put_in(state, **values):
    site = put(Site, **{"domain": "a", "state_attempts": 1, "state_changed": ago(60), **values})
    change(site, state=state)
    return row(site)


def made():
    triggers = sql("SELECT count(*) FROM pg_trigger WHERE tgname = %s", TRIGGER)
    functions = sql("SELECT count(*) FROM pg_proc WHERE proname = %s", function_name(Site))
    return triggers[0][0], functions[0][0]


@on_postgresql
@pytest.mark.parametrize("history", [True, False])
def test_settled_row_begins_again(history):
    operation = ReconcileTrigger.of(Site)
    operation.history = history
    migrate(operation)
    site = settled(state_version=4, state_failures=2, state_crashes=1, state_attempted=ago(5), state_changed=ago(90))
    write(site, domain="b", visits=3)
    found = row(site)
    assert (found.state, found.state_version, found.state_ready, found.visits) == ("checking", 5, True, 3)
    assert (found.state_attempts, found.state_failures, found.state_crashes) == (0, 0, 0)
    assert (found.state_attempted, found.state_next_attempt, found.state_claim) == (None, None, None)
    assert found.state_changed > site.state_changed
    kept = list(History.objects.values_list("model_label", "object_pk", "version", "kind", "source", "to", "reason"))
    expected = ("testapp.site", str(site.pk), 5, "hand", "serving", "checking", "domain changed")
    assert kept == ([expected] if history else [])
    assert all(90 <= stay < 120 for stay in History.objects.values_list("stay", flat=True))
    drain(Site)
    assert row(site).state == "serving"


@on_postgresql
def test_settled_row_that_somebody_holds_loses_its_claim(trigger):
    """Claims on settled rows come from states that became terminal."""
    operations = operations_of(Site)
    site = put(Site, domain="a")
    (claim,) = claim_all(operations)
    change(site, state="serving")
    write(site, domain="b")
    assert row(site).state_claim is None
    assert operations.record([(claim, Moved(SiteGraph.serving))]).lost == [claim]


@on_postgresql
def test_waiting_row_is_attempted_now(trigger):
    site = put_in("checking", state_ready=False, state_next_attempt=ago(-3600))
    write(site, domain="b")
    found = row(site)
    assert (found.state_ready, found.state_next_attempt, found.state_version) == (True, None, 0)
    assert History.objects.count() == 0


@on_postgresql
@pytest.mark.parametrize("implementation", ["vendor", "portable"])
def test_outcome_of_an_attempt_that_began_before_the_change_is_refused(trigger, implementation):
    operations = operations_of(Site, implementation)
    site = put(Site, domain="a")
    (claim,) = claim_all(operations)
    write(site, domain="b")
    assert operations.record([(claim, Moved(SiteGraph.serving))]).lost == [claim]
    assert [claim.pk for claim in claim_all(operations)] == [site.pk]


@on_postgresql
@pytest.mark.parametrize(
    ("before", "values", "seen"),
    [
        ({"domain": "a"}, {"visits": 9}, False),
        ({"domain": "a"}, {"domain": "a"}, False),
        ({"domain": None}, {"domain": None}, False),
        ({"domain": None}, {"domain": ""}, True),
        ({"domain": "a"}, {"domain": None}, True),
        ({"domain": "a"}, {"visits": 9, "domain": "b"}, True),
    ],
)
def test_change_of_a_watched_column_counts_and_nothing_else(trigger, before, values, seen):
    site = settled(**before)
    write(site, **values)
    assert (row(site).state, row(site).state_version) == (("checking", 1) if seen else ("serving", 0))


@on_postgresql
def test_relation_is_watched_by_its_column(trigger):
    site = settled()
    write(site, plan_id=Plan.objects.create(name="big").pk)
    assert row(site).state == "checking"


@on_postgresql
def test_many_rows_in_one_statement_and_upserts(trigger):
    same, other = settled(domain="b"), settled(domain="a")
    sql("UPDATE testapp_site SET domain = 'b'")
    assert (row(same).state, row(other).state) == ("serving", "checking")
    sql("INSERT INTO testapp_site (id, domain, visits, state) VALUES (%s, 'c', 0, 'checking') "
        "ON CONFLICT (id) DO UPDATE SET domain = excluded.domain", same.pk)  # fmt: skip
    assert row(same).state == "checking"


@on_postgresql
def test_external_and_unknown_states_are_left_alone(trigger):
    for state in ("parked", "mislaid"):
        site = put_in(state, state_ready=False)
        write(site, domain="b")
        assert (row(site).state, row(site).state_version, row(site).state_ready) == (state, 0, False)


@on_postgresql
def test_who_writes_framework_columns_as_well_is_obeyed(trigger):
    site = settled()
    write(site, domain="b", state_version=7)
    assert (row(site).state, row(site).state_version) == ("serving", 7)


# Once, and not twice


def with_and_without(request):
    if connection.vendor == "postgresql" and request.param:
        migrate(ReconcileTrigger.of(Site))
    return request.param


with_or_without = pytest.fixture(params=[False, True], ids=["without trigger", "with trigger"])(with_and_without)


@pytest.mark.parametrize("how", ["save", "update", "bulk_update"])
@pytest.mark.parametrize("state", ["serving", "checking"])
def test_the_framework_looks_again_once(with_or_without, how, state):
    delayed = {} if state == "serving" else {"state_next_attempt": ago(-600)}
    site = put_in(state, state_ready=False, **delayed)
    site.domain = "b"
    if how == "save":
        site.save()
    elif how == "update":
        Site.objects.filter(pk=site.pk).update(domain="b")
    else:
        Site.objects.bulk_update([site], ["domain"])
    found = row(site)
    assert (found.state, found.state_version, found.state_ready) == ("checking", int(state == "serving"), True)
    assert (found.domain, History.objects.count()) == ("b", int(state == "serving"))


def test_delay_of_the_first_attempt_stays(with_or_without, monkeypatch):
    monkeypatch.setattr(SiteGraph.checking, "attempt_immediately", False)
    if with_or_without and connection.vendor == "postgresql":
        migrate(ReconcileTrigger.of(Site))
    site = settled()
    site.domain = "b"
    site.save()
    found = row(site)
    assert (found.state, found.state_version, found.state_ready) == ("checking", 1, False)
    assert ago(-3500) < found.state_next_attempt < ago(-3700)
    if with_or_without and connection.vendor == "postgresql":
        raw(Site).update(state="serving")
        write(site, domain="c")
        assert ago(-3500) < row(site).state_next_attempt < ago(-3700)
        assert not row(site).state_ready


def test_handler_that_saves_a_watched_field_keeps_its_claim(with_or_without):
    site = put(Site, domain="a")
    operations = operations_of(Site)
    (claim,) = claim_all(operations)
    claim.instance.__dict__["stator"] = claim
    claim.instance.domain = "b"
    claim.instance.save()
    assert row(site).domain == "b"
    assert operations.record([(claim, Moved(SiteGraph.serving))]).lost == []


def test_move_by_hand_in_the_same_save_stands(with_or_without):
    site = settled()
    site.domain, site.state = "b", "parked"
    site.save()
    assert (row(site).state, row(site).domain) == ("parked", "b")


def test_move_by_hand_in_the_same_update_stands(with_or_without):
    site = settled()
    Site.objects.filter(pk=site.pk).update(domain="b", state="parked")
    assert (row(site).state, row(site).domain) == ("parked", "b")
    put_in("checking")
    Site.objects.filter(state="checking").update(domain="c", state="serving")
    assert set(raw(Site).values_list("state", "domain")) == {("parked", "b"), ("serving", "c")}


def test_failed_save_is_tried_again_with_the_same_meaning(with_or_without):
    site = settled()
    site.domain, visits, site.visits = "b", site.visits, "none"
    with pytest.raises(ValueError, match="none"), transaction.atomic():
        site.save()
    site.visits = visits
    site.save()
    assert (row(site).state, row(site).state_version) == ("checking", 1)


# As a migration


@on_postgresql
def test_forwards_backwards_and_again():
    operation = ReconcileTrigger.of(Site)
    for _ in range(2):
        migrate(operation)
        migrate(operation)
        assert made() == (1, 1)
        migrate(operation, backwards=True)
        assert made() == (0, 0)
    site = settled()
    write(site, domain="b")
    assert row(site).state == "serving"


@on_postgresql
def test_later_operation_takes_the_place_of_an_earlier_one_and_without_fields_it_only_drops(trigger):
    migrate(ReconcileTrigger("Site", ["visits"], initial="checking", settled=["serving"]))
    site = settled()
    write(site, domain="b")
    assert row(site).state == "serving"
    write(site, visits=1)
    assert row(site).state == "checking"
    migrate(ReconcileTrigger("Site", []))
    assert made() == (0, 0)


@on_postgresql
def test_names_are_quoted(trigger):
    odd = "o'd\"d%s"
    migrate(ReconcileTrigger("Site", ["domain"], initial=odd, automatic=[odd], settled=["serving"], history=True))
    site = settled()
    write(site, domain="b")
    assert row(site).state == odd
    assert History.objects.get().to == odd


@on_postgresql
def test_stale_trigger_is_found_and_the_operation_is_told(trigger):
    assert list(check_triggers([Site, Order], "default")) == []
    migrate(ReconcileTrigger("Site", ["domain"], initial="checking"))
    (warning,) = check_triggers([Site, Order], "default")
    assert warning.id == "stator.W303"
    assert repr(trigger) in warning.hint
    migrate(eval(repr(trigger)))
    assert list(check_triggers([Site], "default")) == []


def test_operation_says_all_by_itself_and_goes_into_a_migration():
    operation = ReconcileTrigger.of(Site)
    assert operation.deconstruct()[2] == {
        "fields": ["domain", "plan"], "initial": "checking", "automatic": ["checking"], "settled": ["serving"],
        "delay": 0, "history": False,
    }  # fmt: skip
    text, imports = MigrationWriter.serialize(ReconcileTrigger)
    assert (text, imports) == ("stator.migration_operations.ReconcileTrigger", {"import stator.migration_operations"})
    assert operation.describe() == "Reconcile Site when raw SQL changes domain, plan"
    assert options_of(Site).reconcile_on == ("domain", "plan")


def test_other_databases_are_left_alone(with_or_without, django_assert_num_queries):
    if connection.vendor == "postgresql":
        pytest.skip("for the others")
    state = ProjectState.from_apps(apps)
    operation = ReconcileTrigger.of(Site)
    with django_assert_num_queries(0):
        operation.database_forwards("testapp", connection.schema_editor(), state, state)
        operation.database_backwards("testapp", connection.schema_editor(), state, state)
    assert list(check_triggers([Site], "default")) == []


@on_postgresql
def test_field_that_is_not_in_the_table_is_one_line():
    with pytest.raises(ValueError, match="the table of Site has no nothing"):
        migrate(ReconcileTrigger("Site", ["nothing"], initial="checking"))


def test_initial_state_has_to_be_named():
    with pytest.raises(ValueError, match=r"initial= is missing; name the initial state"):
        ReconcileTrigger("Site", ["domain"])


def storage(name=Site._meta.db_table):
    rows = sql("SELECT unnest(coalesce(reloptions, '{}')) FROM pg_class WHERE relname = %s", name)
    return {text for (text,) in rows}


@on_postgresql
def test_storage_parameters_are_set_and_put_back():
    both = StorageParameters("Site", {"fillfactor": 50, "autovacuum_enabled": True, "toast.autovacuum_enabled": False})
    migrate(both)
    assert storage() == {"fillfactor=50", "autovacuum_enabled=true"}
    migrate(StorageParameters("Site", {"fillfactor": 70, "autovacuum_enabled": None}))
    assert storage() == {"fillfactor=70"}
    migrate(both, backwards=True)
    assert storage() == set()


@on_postgresql
def test_storage_parameters_of_the_index_of_the_key():
    key = f"{Site._meta.db_table}_pkey"
    both = StorageParameters("Site", {"fillfactor": 60}, key={"fillfactor": 50})
    migrate(both)
    assert (storage(), storage(key)) == ({"fillfactor=60"}, {"fillfactor=50"})
    migrate(StorageParameters("Site", {}, key={"fillfactor": None}))
    assert (storage(), storage(key)) == ({"fillfactor=60"}, set())
    migrate(both)
    migrate(both, backwards=True)
    assert (storage(), storage(key)) == (set(), set())


@on_postgresql
def test_storage_parameter_that_nobody_knows_is_refused_by_the_database():
    with pytest.raises(DatabaseError, match='unrecognized parameter "fill"'), transaction.atomic():
        migrate(StorageParameters("Site", {"fill": 50}))


def test_storage_parameters_are_written_into_a_migration():
    operation = StorageParameters("Site", {"fillfactor": 50, "autovacuum_enabled": None}, key={"fillfactor": 60})
    text, imports = OperationWriter(operation, indentation=0).serialize()
    given = {}
    exec("\n".join([*imports, f"operation = {text.rstrip(',')}"]), given)
    assert given["operation"].deconstruct() == operation.deconstruct()
    assert operation.describe() == "Set fillfactor, autovacuum_enabled of the table of Site"


def test_storage_parameters_concern_no_other_database(django_assert_num_queries):
    if connection.vendor == "postgresql":
        pytest.skip("for the others")
    state, operation = ProjectState.from_apps(apps), StorageParameters("Site", {"fillfactor": 50}, {"fillfactor": 50})
    with django_assert_num_queries(0):
        operation.database_forwards("testapp", connection.schema_editor(), state, state)
        operation.database_backwards("testapp", connection.schema_editor(), state, state)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give at least one parameter"),
        ({"fillfactor": "50"}, "'fillfactor': '50' is not a name with a number"),
        ({"fillfactor = 50) --": 1}, "is not a name with a number"),
    ],
)
def test_storage_parameters_without_sense_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        StorageParameters("Site", given)
