"""``Distribute`` on Citus: a table over the nodes, and the way back."""

from collections.abc import Callable
from itertools import chain
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import IntegrityError, connections, migrations, models
from django.db.migrations.state import ProjectState
from django.test.utils import CaptureQueriesContext

from stator.db import session as sessions
from stator.db.probe import Work, look
from stator.db.tables import lack_of
from stator.graph.outcomes import Moved, Waiting
from stator.migration_operations import Distribute, PartitionByTime
from stator.rows import columns
from stator.worker import duties
from tasks.models import Batch, Task
from tests.citus.conftest import NODES, MakeDatabase, over_the_nodes, run
from tests.sizes import PATIENCE
from tests.stator.dividing import PARCEL, SHARD, Tables, parcel, shape
from tests.stator.making import automatic, operations_of
from tests.testapp.keys import Seat
from tests.testapp.spreading import Remark, Sheet, SheetGraph

pytestmark = [pytest.mark.citus, pytest.mark.django_db(databases=[])]

DIVIDE = Distribute("parcel", by="shard")
KINDS = "SELECT citus_table_type, distribution_column, shard_count FROM citus_tables WHERE table_name = %s::regclass"

# The shard of a value, with its node and another one.
ELSEWHERE = """
SELECT shardid, p.nodename, p.nodeport, n.nodename, n.nodeport FROM pg_dist_shard_placement p JOIN pg_dist_node n
  ON n.shouldhaveshards AND n.nodeport <> p.nodeport
WHERE shardid = get_shard_id_for_distribution_column('testapp_sheet', %s::smallint)
"""
MOVE = "SELECT citus_move_shard_placement(%s, %s, %s, %s, %s, 'block_writes')"


def of_citus(tables: Tables) -> list[tuple[object, ...]]:
    with tables.connection.cursor() as cursor:
        cursor.execute(KINDS, [PARCEL])
        return list(cursor.fetchall())


def test_a_table_is_distributed_and_then_ordinary_again(make_database: MakeDatabase) -> None:
    tables = Tables(make_database("stator.citus"))
    tables.migrate(parcel())
    tables.add(3)
    tables.migrate(migrations.AddField("parcel", "shard", SHARD))
    tables.add(2, shard=5)
    rows, before = list(tables.rows().order_by("pk").values_list()), shape(PARCEL, tables.connection)
    tables.migrate(DIVIDE, DIVIDE)
    assert of_citus(tables) == [("distributed", "shard", 32)]
    assert list(tables.rows().order_by("pk").values_list()) == rows
    [new] = tables.add(shard=31)
    assert new.pk == 6
    with pytest.raises(IntegrityError):
        tables.rows().create(pk=6, shard=31)
    index = migrations.AddIndex("parcel", models.Index(fields=["shard", "label"], name="crates_new"))
    tables.migrate(migrations.AddField("parcel", "weight", models.IntegerField(default=1)), index)
    for _ in range(4):
        tables.back()
    assert of_citus(tables) == []
    assert shape(PARCEL, tables.connection) == before
    assert tables.rows().count() == 6
    [new] = tables.add()
    assert new.pk == 7


def test_a_table_is_beside_another_one_and_refers_to_reference_tables(make_database: MakeDatabase) -> None:
    tables = Tables(make_database("stator.citus"))
    fields = [("id", models.BigAutoField(primary_key=True)), ("shard", SHARD)]
    strict, loose = (
        models.ForeignKey("Crate", models.CASCADE, null=True, db_constraint=each) for each in (True, False)
    )
    tables.migrate(parcel(shard=SHARD), migrations.CreateModel("Crate", fields))
    tables.migrate(migrations.AddField("parcel", "crate", strict))
    with pytest.raises(CommandError, match=r"refers to crates_crate\. Give its field db_constraint=False"):
        tables.migrate(DIVIDE)
    tables.migrate(migrations.AlterField("parcel", "crate", loose), DIVIDE)
    run(tables.alias, "SELECT create_reference_table('crates_crate')")
    tables.migrate(migrations.AlterField("parcel", "crate", strict))
    with pytest.raises(IntegrityError):
        tables.rows().create(crate_id=1)
    tables.migrate(migrations.CreateModel("Other", fields), Distribute("other", by="shard", colocate_with=PARCEL))
    with tables.connection.cursor() as cursor:
        cursor.execute("SELECT count(DISTINCT colocation_id) FROM citus_tables WHERE distribution_column = 'shard'")
        assert cursor.fetchone() == (1,)


def test_a_table_in_a_distributed_schema_is_refused(schema: str) -> None:
    tables = Tables(schema)
    tables.migrate(parcel(shard=SHARD))
    with pytest.raises(CommandError, match="crates_parcel is in a distributed schema"):
        tables.migrate(DIVIDE)


@pytest.fixture
def alias(make_database: MakeDatabase) -> str:
    """Return the alias of a database where the tables of sheets, remarks and seats are distributed."""
    alias = over_the_nodes(make_database, Sheet="shard", Remark="author", Seat="hall")
    assert lack_of(Sheet, alias) == ""
    return alias


@pytest.mark.parametrize(
    "made", [lambda n: Remark(author=f"author {n % 7}"), lambda n: Seat(hall=n % 7, number=n)], ids=["text", "key"]
)
def test_objects_are_moved_by_each_value_of_a_field_of_the_project(alias: str, made: Callable[[int], Any]) -> None:
    model = type(made(0))
    model.objects.using(alias).bulk_create(map(made, range(70)))
    operations = operations_of(model, alias=alias)
    end = operations.graph.states["done" if model is Remark else "sold"]
    assert look(operations)[operations] == Work(ready=True)
    # A state with a limit is claimed by itself.
    states = [state for state in automatic(operations) if not state.concurrency]
    while claims := operations.claim(states, 25):
        operations.record([(claim, Moved(end)) for claim in claims])
    assert model.objects.using(alias).filter(state=end.name).count() == 70
    assert look(operations)[operations] == Work()


def test_poll_finds_what_there_is_to_do_on_any_node(alias: str) -> None:
    operations = operations_of(Sheet, alias=alias)
    sheet = Sheet.objects.using(alias).create()
    mine = operations.undivided.filter(pk=sheet.pk)
    for now, expected in (
        ({}, Work(ready=True)),
        ({"state_crashes": 1}, Work(crashed=True)),
        ({"state_crashes": 2}, Work(suspect=True)),
        ({"state_crashes": 0, "state_ready": False, "state_next_attempt": columns.after(-1)}, Work(due=True)),
        ({"state_claim": uuid4(), "state_locked_until": columns.after(-1)}, Work(expired=True)),
        ({"state_locked_until": columns.after(60)}, Work()),
    ):
        if now:
            mine.update(**now)
        assert look(operations)[operations] == expected
    mine.update(state_claim=None, state_locked_until=None, state_next_attempt=columns.after(60))
    [work] = look(operations_of(Sheet, alias=alias, POLL_INTERVAL=120.0)).values()
    assert work.next_due is not None
    assert 0 < work.next_due <= 60


def test_poll_and_search_for_slices_are_a_call_for_each_node(alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operations, sent, send = operations_of(Sheet, alias=alias), list[str](), sessions.send
    states = [SheetGraph.new]
    look(operations)
    assert operations.claim(states, 10) == []

    def keep(connection: Any, statement: str, params: Any) -> Any:
        sent.append(statement)
        return send(connection, statement, params)

    monkeypatch.setattr(sessions, "send", keep)
    assert look(operations)[operations] == Work()
    assert operations.claim(states, 10) == []
    # The pauses are on the coordinator.
    assert [text.partition(" ")[0] for text in sent if "stator_pause" not in text] == ["EXECUTE"] * 2 * max(
        1, len(NODES)
    )


@pytest.mark.skipif(len(NODES) < 2, reason="CITUS_NODES has fewer than two nodes")
def test_poll_misses_no_row_when_its_shard_moves_to_another_node(alias: str) -> None:
    operations = operations_of(Sheet, alias=alias)
    assert look(operations)[operations] == Work()
    sheet: Any = Sheet.objects.using(alias).create()
    with connections[alias].cursor() as cursor:
        cursor.execute(ELSEWHERE, [sheet.shard])
        cursor.execute(MOVE, cursor.fetchone())
    # By the statement on all shards, by calls, and by calls to all nodes that have shards.
    for _ in range(2):
        assert look(operations)[operations] == Work(ready=True)
    assert [claim.pk for claim in operations.claim([SheetGraph.new], 10)] == [sheet.pk]


def test_rows_are_counted_up_to_a_limit_on_the_nodes_that_have_them(alias: str) -> None:
    rows = Sheet.objects.using(alias)
    rows.bulk_create([Sheet() for _ in range(5)])
    division = operations_of(Sheet, alias=alias).division
    with CaptureQueriesContext(connections[alias]) as asked:
        assert division.counts([rows.all(), rows.filter(state="done")], 3) == [3, 0]
    # Django would have asked for the rows.
    assert not [each for each in asked if "LIMIT" in each["sql"]]


@pytest.mark.parametrize("model", [Sheet, Remark, Seat])
def test_poll_needs_no_function_and_migrate_makes_it(alias: str, model: Any) -> None:
    Sheet.objects.using(alias).create()
    run(alias, "DROP FUNCTION stator_in_shards(text, text, text)")
    operations = operations_of(Sheet, alias=alias)
    assert look(operations)[operations] == Work(ready=True)
    assert len(operations.claim([SheetGraph.new], 10)) == 1
    call_command("migrate", database=alias, verbosity=0)
    assert operations_of(model, alias=alias).division.shards.ask("ARRAY['a']") == [["a"]] * 32


def test_plans_are_kept_for_each_slice(alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # However slow the cluster is, no later claim returns to the head.
    monkeypatch.setattr("stator.db.claims.HEAD_EVERY", PATIENCE)
    Sheet.objects.using(alias).bulk_create([Sheet(shard=shard) for shard in (0, 1) for _ in range(8)])
    for part in operations_of(Sheet, alias=alias).division.known()[:2]:
        for claim in chain.from_iterable(part.claim([SheetGraph.new], 1) for _ in range(8)):
            part.record([(claim, Moved(SheetGraph.done))])
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT generic_plans FROM pg_prepared_statements WHERE custom_plans = 0")
        # Claims from the first use on; the first claim of a slice is from its head, and has another text. Records are
        # in a transaction with the history, and are prepared after some uses.
        assert sorted(cursor.fetchall()) == [(1,), (1,), (3,), (3,), (7,), (7,)]
        cursor.execute("SELECT current_setting('plan_cache_mode'), current_setting('lock_timeout')")
        assert cursor.fetchone() == ("auto", "0")


def test_objects_of_a_distributed_table_are_moved_by_workers_and_by_hand(alias: str) -> None:
    Sheet.objects.using(alias).bulk_create([Sheet() for _ in range(100)])
    operations, moved = operations_of(Sheet, alias=alias), 0
    while claims := operations.claim([SheetGraph.new], 40):
        ends = [Waiting(3600) if (moved := moved + 1) % 10 == 0 else Moved(SheetGraph.done) for _ in claims]
        operations.record(list(zip(claims, ends, strict=True)))
    sheets = Sheet.objects.using(alias)
    assert sheets.filter(state="done").count() == 90
    whens = duties.When.START, duties.When.PASS
    for duty in (duties.MARK_READY, duties.REAP, *chain.from_iterable(map(duties.duties_of, whens))):
        duties.perform(duty, operations, stopped=lambda: False)
    Sheet.stator.using(alias).retry()
    Sheet.transition_perform_queryset(sheets.filter(state="new"), "left")
    assert sheets.filter(state="left").count() == 10
    one = sheets.filter(state="left").first()
    assert one
    # A stale value of an instance moves no row.
    vars(one).update(shard=(vars(one)["shard"] + 1) % 32)
    one.save()
    assert one.explain()
    one.transition_perform("new")
    one.delete()
    assert sheets.count() == 99


def test_tasks_are_beside_their_runs_and_every_node_has_the_queues(make_database: MakeDatabase) -> None:
    alias = make_database("stator.citus")
    call_command("migrate", database=alias, verbosity=0, run_syncdb=True)
    connection, operation, state = (
        connections[alias],
        Distribute("tasks.Task", by="shard"),
        ProjectState.from_apps(apps),
    )
    tables = ("tasks_task", "tasks_run", "tasks_queue", "tasks_batch")
    before = [shape(table, connection) for table in tables]
    for _ in range(2):
        with connection.schema_editor(atomic=False) as editor:
            operation.database_forwards("testapp", editor, state, state)
    with connection.cursor() as cursor:
        cursor.execute("SELECT table_name::text, citus_table_type, colocation_id FROM citus_tables ORDER BY 1")
        (queues, *of_queues), (runs, *of_runs), (tasks, *of_tasks) = cursor.fetchall()
    assert (queues, runs, tasks) == ("tasks_queue", "tasks_run", "tasks_task")
    assert of_queues[0] == "reference"
    assert of_runs == of_tasks
    assert of_tasks[0] == "distributed"
    assert lack_of(Task, alias) == lack_of(Batch, alias) == ""
    refused = pytest.raises(CommandError, match="Citus has distributed the table")
    with refused, connection.schema_editor(atomic=False) as editor:
        PartitionByTime("tasks.Run", "month").database_forwards("testapp", editor, state, state)
    with connection.schema_editor(atomic=False) as editor:
        operation.database_backwards("testapp", editor, state, state)
    assert [shape(table, connection) for table in tables] == before
