"""The same behaviour over every kind of primary key, table, inheritance and database. Fault F26."""

import uuid

import pytest
from django.db import IntegrityError, connection, models
from django.test import override_settings
from django.test.utils import isolate_apps

from stator.db import chores
from stator.graph.failures import describe
from stator.graph.outcomes import Moved, Waiting
from stator.models import History, Report, StatorModel, Stats
from stator.rows import spread
from stator.rows.claimable import Crashes
from stator.rows.spread import SPREAD
from stator.rows.state_column import StateField
from stator.runner import StatorRunner
from stator.worker.startup import check_database
from tests.stator.making import ago, at_once, automatic, claim_all, expire, operations_of, raw, row
from tests.testapp.keys import (
    AliasKeyed,
    BigKeyed,
    BigProxy,
    Branch,
    Code,
    CodeKeyed,
    Heir,
    IntKeyed,
    KeyGraph,
    Ledger,
    OddColumns,
    OddTable,
    OneToOneKeyed,
    Plain,
    QuotedTable,
    TextKeyed,
    UuidKeyed,
)
from tests.testapp.spreading import Leaf, Sheet

TEXTS = ["it's", '"', "é日本🎉", "'; DROP TABLE testapp_textkeyed; --", "%s %(x)s {0}", "a\\b", "z" * 255, " "]

MAKE = {
    "int": (IntKeyed, lambda number: IntKeyed()),
    "bigint": (BigKeyed, lambda number: BigKeyed(id=2**62 + number)),
    "uuid": (UuidKeyed, lambda number: UuidKeyed(id=uuid.uuid4())),
    "text": (TextKeyed, lambda number: TextKeyed(slug=TEXTS[number])),
    "custom field": (CodeKeyed, lambda number: CodeKeyed(code=Code(f"c{number}"))),
    "one to one": (OneToOneKeyed, lambda number: OneToOneKeyed(plain=Plain.objects.create())),
    "child of a plain parent": (Heir, lambda number: Heir(title="x")),
    "child of a managed parent": (Branch, lambda number: Branch(leaf="x")),
    "proxy": (BigProxy, lambda number: BigProxy()),
    "odd table": (OddTable, lambda number: OddTable()),
    "quoted table": (QuotedTable, lambda number: QuotedTable()),
    "odd columns": (OddColumns, lambda number: OddColumns()),
    "composite": (Ledger, lambda number: Ledger(owner=uuid.UUID(int=7), number=number)),
}
# The table in which the row's state is.
OWNERS = {Branch: BigKeyed, BigProxy: BigKeyed}
COUNT = 4

# Those whose rows are reached by more than a number, or in another table.
ODD = ("text", "custom field", "one to one", "child of a managed parent", "odd columns", "composite")
odd_ones = pytest.mark.parametrize(("model", "make"), [MAKE[name] for name in ODD], ids=ODD)


def made(make, count=COUNT):
    instances = []
    for number in range(count):
        instance = make(number)
        instance.save(force_insert=True)
        instances.append(instance)
    return instances


def finish(instances):
    model = type(instances[0])
    assert {found.state for found in raw(model).all()} == {"last"}
    assert set(raw(model).values_list("state_version", "note", "state_claim")) == {(2, "seen", None)}


@pytest.mark.usefixtures("transactional_db")
@odd_ones
def test_real_worker_takes_rows_to_the_end(model, make):
    instances = made(make)
    summary = StatorRunner([model], until_idle=True).run()
    finish(instances)
    label = OWNERS.get(model, model)._meta.label_lower
    assert summary.handled == {label: 2 * COUNT}
    assert summary.moved == {(label, "second"): COUNT, (label, "last"): COUNT}
    assert (summary.failed, summary.lost) == (0, 0)
    assert sum(Stats.objects.values_list("handled", flat=True)) == 2 * COUNT
    assert Stats.get_for_model(model).most_recent_handled()[0] == 2 * COUNT


@pytest.mark.usefixtures("transactional_db")
@pytest.mark.parametrize(
    ("model", "make", "implementation"),
    [*((*each, "vendor") for each in MAKE.values()), *((*MAKE[name], "portable") for name in ODD)],
    ids=[*MAKE, *(f"{name}, portable" for name in ODD)],
)
def test_rows_are_claimed_once_fenced_reaped_and_moved(model, make, implementation):
    instances = made(make)
    owner = OWNERS.get(model, model)
    workers = [operations_of(owner, implementation) for _ in range(2)]
    claimed = [claim for claims in at_once(*(lambda w=w: claim_all(w) for w in workers)) for claim in claims]
    assert {str(claim.pk) for claim in claimed} == {str(instance.pk) for instance in instances}
    assert len(claimed) == COUNT
    first, second = claimed[0], claimed[1]
    assert first.operations.renew([first]) == set()
    expire(raw(owner).get(pk=first.pk))
    assert [pk for pk, _ in workers[0].reap(10)] == [first.pk]
    written = workers[0].record([(first, Moved(KeyGraph.second)), (second, Moved(KeyGraph.second))])
    assert (written.lost, [move.pk for move in written.moves]) == ([first], [second.pk])
    again = workers[0].claim(automatic(workers[0]), 1, crashes=Crashes.FEW)
    assert [claim.pk for claim in again] == [first.pk]
    failed = workers[0].record([(again[0], Waiting(0.0, describe(ValueError("no"))))])
    assert [pk for pk, _ in failed.failures] == [first.pk]
    assert Report.objects.get().object_pk == str(first.pk)
    assert str(model.stator.with_report().get().pk) == str(first.pk)
    # Chores know the rows, too.
    raw(owner).update(state_ready=False, state_claim=None, state_locked_until=None, state_next_attempt=None)
    assert chores.mark_ready(workers[0], 10) == COUNT
    raw(owner).update(state="last", state_ready=False, state_changed=ago(61))
    assert chores.delete_due(workers[0], 1) == 1
    assert raw(model).count() == COUNT - 1


@pytest.mark.django_db
@odd_ones
def test_rows_are_moved_by_hand_in_every_manner(model, make):
    one, other = made(make, 2)
    one.transition_perform("second")
    other.state = KeyGraph.second
    other.save()
    assert model.transition_perform_queryset(model.objects.all(), "last") == 2
    assert model.objects.update(state="first", note="again") == 2
    assert model.stator.in_state("first").move("second") == 2
    assert set(raw(model).values_list("state", "state_version", "note")) == {("second", 4, "again")}
    pks = {str(one.pk), str(other.pk)}
    assert set(History.objects.values_list("object_pk", flat=True)) == pks
    assert History.objects.filter(model_label=OWNERS.get(model, model)._meta.label_lower).count() == 8


# Databases other than the default


class Elsewhere:
    def db_for_read(self, model, **hints):
        return "other" if model is UuidKeyed else None

    db_for_write = db_for_read


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
class TestOtherDatabase:
    def test_rows_are_worked_on_where_routers_write_them(self):
        with override_settings(DATABASE_ROUTERS=[f"{__name__}.Elsewhere"]):
            made = UuidKeyed.objects.create()
            assert made._state.db == "other"
            StatorRunner([UuidKeyed], until_idle=True).run()
        found = raw(UuidKeyed, "other").get(pk=made.pk)
        assert (found.state, found.note, found.state_version) == ("last", "seen", 2)
        assert sum(Stats.objects.using("other").values_list("handled", flat=True)) == 2
        assert not raw(UuidKeyed).exists()
        assert not Stats.objects.using("default").exists()


# Names of tables that Django itself takes on one database only


@isolate_apps("tests.testapp")
def check_table(name):
    class Strange(StatorModel):
        state = StateField(KeyGraph)
        note = models.CharField(max_length=20, blank=True)

        class Meta:
            app_label = "testapp"
            db_table = name

    with connection.schema_editor() as editor:
        editor.create_model(Strange)
    try:
        instance = Strange.objects.create()
        check_database([Strange])
        assert StatorRunner([Strange], until_idle=True).run().handled == {"testapp.strange": 2}
        assert row(instance).state == "last"
        assert Strange.stator.move("first") == 1
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(Strange)


@pytest.mark.sqlite
def test_table_with_a_percent_sign(transactional_db):
    # On PostgreSQL, Django itself takes it for a placeholder.
    check_table("100% 'sure'")


@pytest.mark.postgresql
def test_table_in_a_schema_of_its_own(transactional_db):
    # SQLite has no schemas.
    with connection.cursor() as cursor:
        cursor.execute("CREATE SCHEMA elsewhere")
    try:
        check_table('"elsewhere"."rows"')
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP SCHEMA elsewhere CASCADE")


@pytest.mark.django_db(transaction=True)
def test_keys_that_are_stored_otherwise_are_shown_as_python_has_them():
    AliasKeyed.objects.create(alias="ord_1")
    summary = StatorRunner([AliasKeyed], until_idle=True).run()
    assert (summary.lost, sum(summary.moved.values())) == (0, 2)
    assert set(History.objects.values_list("object_pk", "to")) == {("ord_1", "second"), ("ord_1", "last")}


@pytest.mark.django_db
def test_row_stays_in_its_slice_and_a_known_key_decides_it():
    key = uuid.uuid4()
    sheet = Sheet.objects.create(pk=key)
    assert sheet.shard in SPREAD
    sheet.save()
    sheet.transition_perform("left")
    assert row(sheet).shard == sheet.shard == Sheet.objects.get(pk=key).shard
    with pytest.raises(IntegrityError):
        Sheet.objects.bulk_create([Sheet(pk=key)])


@pytest.mark.django_db
def test_rows_that_the_database_numbers_are_in_all_slices_but_those_of_a_moment_in_one(monkeypatch):
    now = 0.0
    monkeypatch.setattr(spread, "BURST", spread.Burst())
    monkeypatch.setattr(spread, "monotonic", lambda: now)
    used = []
    for _ in range(64):
        made = Leaf.objects.bulk_create([Leaf() for _ in range(3)])
        [part] = {leaf.shard for leaf in [*made, Leaf.objects.create()]}
        assert set(raw(Leaf).filter(pk__in=[leaf.pk for leaf in made]).values_list("shard", flat=True)) <= {part}
        used.append(part)
        now += 1
    assert len(set(used)) > 15


def test_many_rows_of_one_moment_are_in_all_slices():
    burst = spread.Burst()
    burst.SECONDS = 600
    parts = [burst.part() for _ in range(6400)]
    assert all(len(set(parts[n : n + 100])) == 1 for n in range(0, 6400, 100))
    assert len(set(parts)) > 15
