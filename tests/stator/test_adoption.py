"""Tables that get the mixin while other programs use them."""

from datetime import timedelta
from threading import Event, Thread
from uuid import uuid4

import pytest
from django.core.management.base import CommandError
from django.db import connection, models, transaction
from django.db.migrations import AddField, Migration, RunSQL
from django.db.migrations.optimizer import MigrationOptimizer
from django.db.migrations.writer import MigrationWriter
from django.utils import timezone

from stator import adoption
from stator.adoption import FillStates
from stator.extensions.migrating import operations
from stator.graph import State, StateGraph
from tests.adopting import TABLE, apply, before, columns_and_indexes, execute, generated, table_to_adopt, unapply
from tests.sizes import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def trunk():
    with table_to_adopt() as model:
        yield model


@pytest.fixture
def held(trunk):
    """The table, while another transaction reads it; call what is given to end that."""
    ready, end = Event(), Event()

    def hold():
        with transaction.atomic():
            execute(f"SELECT count(*) FROM {TABLE}")
            ready.set()
            end.wait(PATIENCE)
        connection.close()

    thread = Thread(target=hold)
    thread.start()
    assert ready.wait(PATIENCE)
    yield end.set
    end.set()
    thread.join()


def test_columns_and_indexes_come_in_a_migration_that_is_not_atomic_and_go_with_it(trunk):
    plain = columns_and_indexes()
    migrations = generated(trunk, before())
    assert [migration.atomic for migration in migrations] == [False]
    assert [each.describe() for each in migrations[0].operations] == ["Alter the table of Trunk while it is in use"]
    apply(migrations, before())
    columns, indexes = columns_and_indexes()
    assert columns >= {"state", "state_claim", "state_version"}
    assert len(indexes) == 5
    unapply(migrations, before())
    assert columns_and_indexes() == plain


def test_other_changes_stay_in_atomic_migrations_before_it_and_removals_after_it(trunk):
    state = before(("former", models.TextField(default="")))
    state.models["testapp", "trunk"].fields["label"] = models.CharField(max_length=50)
    migrations = generated(trunk, state)
    assert [migration.atomic for migration in migrations] == [True, False, True]
    kinds = [[type(operation).__name__ for operation in migration.operations] for migration in migrations]
    assert kinds == [["AlterField"], ["AlterTableInUse"], ["RemoveField"]]


def test_sql_of_the_migration_takes_no_lock_and_changes_nothing(trunk):
    plain = columns_and_indexes()
    [migration] = generated(trunk, before())
    with connection.schema_editor(atomic=False, collect_sql=True) as editor:
        migration.apply(before(), editor, collect_sql=True)
    told = "\n".join(editor.collected_sql)
    assert "state_claim" in told
    assert "LOCK TABLE" not in told
    assert "lock_timeout" not in told
    assert columns_and_indexes() == plain


def described(operation):
    return [each.describe() for each in operation.operations]


def test_interrupted_migration_is_completed_by_the_next(trunk):
    migrations = generated(trunk, before())
    whole = migrations[0].operations[0].operations
    whole.append(AddField("trunk", "within", models.ForeignKey("Trunk", models.CASCADE, null=True, db_column="place")))
    [first, *_] = [operation for operation in whole if type(operation).__name__ == "AddField"]
    state = before()
    with connection.schema_editor() as editor:
        after = state.clone()
        first.state_forwards("testapp", after)
        first.database_forwards("testapp", editor, state, after)
    apply(migrations, before())
    whole = columns_and_indexes()
    apply(migrations, before())
    assert columns_and_indexes() == whole


@pytest.mark.postgresql
def test_index_whose_building_was_interrupted_is_built_again(trunk):
    migrations = generated(trunk, before())
    apply(migrations, before())
    [name, *_] = columns_and_indexes()[1]
    execute(f"UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{name}'::regclass")
    apply(migrations, before())
    assert execute(f"SELECT indisvalid FROM pg_index WHERE indexrelid = '{name}'::regclass") is True


@pytest.mark.postgresql
def test_table_that_another_transaction_holds_is_altered_once_it_is_free(trunk, held, monkeypatch):
    tries = []
    monkeypatch.setattr(adoption, "LOCK_TIMEOUT", 0.05)

    def give_way(seconds):
        tries.append(seconds)
        if len(tries) == 2:
            held()

    monkeypatch.setattr(adoption, "sleep", give_way)
    apply(generated(trunk, before()), before())
    assert len(tries) >= 2
    assert "state_claim" in columns_and_indexes()[0]


@pytest.mark.postgresql
def test_table_that_is_never_free_is_left_as_it_was_with_one_sentence(trunk, held, monkeypatch):
    plain = columns_and_indexes()
    monkeypatch.setattr(adoption, "LOCK_TIMEOUT", 0.05)
    monkeypatch.setattr(adoption, "PATIENCE", 0.1)
    with pytest.raises(CommandError, match=f"locks on the table {TABLE} for 0 s.*End them, then migrate again"):
        apply(generated(trunk, before()), before())
    assert columns_and_indexes() == plain


SENT = ("sent_at", models.DateTimeField(null=True))
TRIES = ("tries", models.IntegerField(default=0))
FILL = FillStates("Trunk", {"done": models.Q(sent_at__isnull=False), "fresh": models.Q(tries=7)}, ["done"])


@pytest.fixture
def trunk_with_times():
    """The model, its former one, the migrations of its columns, and the state of the project after them."""
    with table_to_adopt(SENT, TRIES) as model:
        former = before(SENT, TRIES).apps.get_model("testapp", "Trunk")
        migrations = generated(model, before(SENT, TRIES))
        # The columns stay; the model of the test has them not.
        [columns] = [migration for migration in migrations if not migration.atomic]
        yield model, former, [columns]


def fill(fill, state):
    """Apply the operation as ``migrate`` does, and reverse it."""
    with connection.schema_editor(atomic=False) as editor:
        fill.database_forwards("testapp", editor, state, state)


def test_rows_get_the_first_state_whose_condition_they_meet_or_stay_in_the_initial_one(trunk_with_times):
    """A row that a worker has claimed already stays."""
    model, former, migrations = trunk_with_times
    now = timezone.now()
    given = ((now, 7), (None, 0), (None, 7), (now, 7), (now, 0))
    sent, open_one, tried, claimed, goes = (former.objects.create(sent_at=at, tries=n) for at, n in given)
    state = apply(migrations, before(SENT, TRIES))
    execute(f"UPDATE {TABLE} SET state_claim = '{uuid4().hex}' WHERE id = {claimed.pk}")
    # A condition of the initial state keeps rows from later ones.
    fill(FillStates("Trunk", dict(reversed(FILL.states.items())), ["done"]), state)
    states = dict(model.objects.values_list("pk", "state"))
    assert states == dict.fromkeys((sent.pk, open_one.pk, tried.pk, claimed.pk), "fresh") | {goes.pk: "done"}
    fill(FILL, state)
    found = {each.pk: (each.state, each.state_ready, each.state_version) for each in model.objects.all()}
    assert found[sent.pk][:2] == ("done", False)
    assert found[claimed.pk][0] == "fresh"
    assert found[open_one.pk] == found[tried.pk] == ("fresh", True, found[sent.pk][2] - 1)


def test_states_are_filled_in_batches_again_after_an_interruption_and_the_old_column_stays(
    trunk_with_times, monkeypatch
):
    model, former, migrations = trunk_with_times
    now = timezone.now()
    former.objects.bulk_create(former(sent_at=now, label=str(number)) for number in range(25))
    state = apply(migrations, before(SENT, TRIES))
    monkeypatch.setattr(operations, "BATCH", 10)
    batches = []

    def interrupted(rows, changes):
        batches.append(rows.count())
        if len(batches) == 2:
            raise KeyboardInterrupt
        return write(rows, changes)

    write = operations._write
    monkeypatch.setattr(operations, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fill(FILL, state)
    assert model.objects.filter(state="done").count() == 10
    fill(FILL, state)
    assert model.objects.filter(state="done").count() == 25
    unapply(migrations, before(SENT, TRIES))
    assert set(former.objects.values_list("sent_at", flat=True)) == {now}


def test_migration_that_fills_states_can_be_written_and_squashed():
    migration = Migration("0003_states", "testapp")
    migration.operations = [FILL]
    names = {}
    exec(MigrationWriter(migration).as_string(), names)
    [read] = names["Migration"].operations
    assert (read.states, read.at_rest) == (FILL.states, ["done"])
    # makemigrations optimizes what it has made, and squashmigrations what it has read.
    other = RunSQL("SELECT 1")
    assert MigrationOptimizer().optimize([other, FILL], "testapp") == [other, FILL]
    assert MigrationOptimizer().optimize([other, read], "testapp") == [other]


EARLIER = (
    ("state", models.CharField(default="fresh", max_length=100)),
    ("state_changed", models.DateTimeField(auto_now_add=True)),
    ("state_ready", models.BooleanField(default=True)),
    ("state_attempted", models.DateTimeField(null=True)),
    ("state_locked_until", models.DateTimeField(null=True)),
)


class PatientGraph(StateGraph):
    fresh = State(try_interval=60)
    done = State()

    fresh.transitions_to(done)

    @classmethod
    def handle_fresh(cls, instance):
        return cls.done


def test_rows_of_a_package_without_due_times_are_due_an_interval_after_their_attempt_and_back():
    now = timezone.now()
    with table_to_adopt(*EARLIER, graph=PatientGraph) as model:
        former = before(*EARLIER).apps.get_model("testapp", "Trunk")
        waiting = former.objects.create(state_ready=False, state_attempted=now)
        late = former.objects.create(state_ready=False, state_attempted=now - timedelta(days=9))
        never = former.objects.create()
        migrations = generated(model, before(*EARLIER))
        apply(migrations, before(*EARLIER))
        due = dict(model.objects.values_list("pk", "state_next_attempt"))
        assert due == {waiting.pk: now + timedelta(seconds=60), late.pk: None, never.pk: None}
        assert not model.objects.filter(state_ready=True).exists()

        execute(f"UPDATE {TABLE} SET state_ready = true")
        unapply(migrations, before(*EARLIER))
        assert not former.objects.get(pk=waiting.pk).state_ready
        assert former.objects.get(pk=late.pk).state_ready
