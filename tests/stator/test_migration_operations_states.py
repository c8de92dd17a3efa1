"""States are renamed and removed while rows are in them: what ``makemigrations`` writes and ``migrate`` does."""

from time import monotonic

import pytest
from django.core.management.base import CommandError
from django.db import OperationalError, connection

from stator.capabilities import capabilities_of
from stator.extensions.migrating import operations
from stator.graph.outcomes import Moved
from stator.migration_operations import RemapState, RenameState
from stator.testing import drain
from tests.sizes import size
from tests.stator.dividing import migrate
from tests.stator.making import ago, change, claim_all, operations_of, put, raw, row
from tests.testapp.basic import Step, StepGraph
from tests.testapp.mails import Mail

ROWS = size(200_000, 2_500)
NEW_ROWS = (
    "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows}) "
    "SELECT 'new', '' FROM numbers"
)


def put_in(state, **columns):
    """A row in any state, also in one that the graph does not have."""
    step = put(Step, **columns)
    change(step, state=state)
    return row(step)


@pytest.mark.django_db
class TestOperations:
    def test_renamed_state_keeps_attempts_and_times(self):
        step = put_in(
            "older", state_attempts=2, state_failures=1, state_changed=ago(90), state_next_attempt=ago(-50),
            state_ready=False,
        )  # fmt: skip
        migrate(RenameState("step", "older", "renewed"))
        found = row(step)
        assert (found.state, found.state_version) == ("renewed", step.state_version + 1)
        for name in ("state_attempts", "state_failures", "state_changed", "state_next_attempt", "state_ready"):
            assert getattr(found, name) == getattr(step, name)
        migrate(RenameState("step", "older", "renewed"), backwards=True)
        assert row(step).state == "older"

    @pytest.mark.parametrize("operation", [RenameState("step", "slow", "new"), RemapState("step", "slow", "new")])
    def test_worker_with_the_former_code_cannot_write_after_it(self, operation):
        """Two versions of the code run, and the former one is in the middle of an attempt."""
        step = put_in("slow")
        operations = operations_of(Step)
        (claim,) = claim_all(operations)
        migrate(operation)
        written = operations.record([(claim, Moved(StepGraph.done, None))])
        assert (written.lost, row(step).state, row(step).state_claim) == ([claim], "new", None)
        assert drain(Step) == 1
        assert row(step).state == "done"

    def test_remapped_rows_enter_the_state_anew(self):
        step = put_in("outside", state_attempts=2, state_failures=1, state_crashes=1, state_changed=ago(90))
        other = put_in("late", state_ready=False, state_next_attempt=ago(-50))
        migrate(RemapState("step", "outside", "new"))
        found = row(step)
        assert (found.state, found.state_version, found.state_ready) == ("new", step.state_version + 1, True)
        assert (found.state_attempts, found.state_failures, found.state_crashes) == (0, 0, 0)
        assert found.state_changed > step.state_changed
        assert row(other).state == "late"
        migrate(RemapState("step", "outside", "new"), backwards=True)
        assert row(step).state == "new"

    def test_rows_in_a_state_without_a_map_or_with_a_wrong_one_are_refused(self):
        """With a state that the field's names no longer have: the field was altered before."""
        migrate(RemapState("step", "lost"))
        step = put_in("lost")
        message = r"1 rows of testapp\.Step are in the state 'lost', .* RemapState\('step', 'lost', 'STATE'\)"
        with pytest.raises(CommandError, match=message):
            migrate(RemapState("step", "lost"))
        with pytest.raises(CommandError, match=r"testapp\.Step has no state 'dnoe'\. Name one .*: .*done"):
            migrate(RemapState("step", "lost", "dnoe"))
        assert row(step).state == "lost"


def put_number(number, **columns):
    """A row of a model whose states have numbers, with one that the graph need not have."""
    mail = put(Mail, **columns)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_mail SET status = %s WHERE id = %s", [number, mail.pk])
    return mail


def number_of(mail):
    with connection.cursor() as cursor:
        cursor.execute("SELECT status, state_version, state_attempts FROM testapp_mail WHERE id = %s", [mail.pk])
        return cursor.fetchone()


@pytest.mark.django_db
class TestNumbers:
    def test_other_number_is_stored_for_a_state_and_its_attempts_stay(self):
        mail, other = put_number(7, state_attempts=2), put(Mail)
        migrate(RenameState("mail", 7, 1, field="status"))
        assert (number_of(mail), number_of(other)) == ((1, 1, 2), (0, 0, 0))
        migrate(RenameState("mail", 7, 1, field="status"), backwards=True)
        assert number_of(mail) == (7, 2, 2)

    def test_rows_are_moved_from_a_number_to_a_state_by_its_name_or_number(self):
        gone, refused, also = put_number(7, state_attempts=2), put(Mail, status="refused"), put(Mail, status="recalled")
        migrate(RemapState("mail", 7, "queued", field="status"))
        migrate(RemapState("mail", "refused", "queued", field="status"))
        migrate(RemapState("mail", 3, 0, field="status"))
        assert [number_of(each) for each in (gone, refused, also)] == [(0, 1, 0)] * 3

    def test_rows_with_a_number_that_the_graph_lost_are_refused_without_a_map(self):
        put_number(7)
        with pytest.raises(CommandError, match=r"in the state 7, .* RemapState\('mail', 7, 'STATE', field='status'\)"):
            migrate(RemapState("mail", 7, field="status"))
        with pytest.raises(CommandError, match=r"has no state 'quued'\. Name one .*: queued, "):
            migrate(RemapState("mail", 7, "quued", field="status"))


@pytest.mark.proof
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("operation", [RenameState("step", "new", "late"), RemapState("step", "new", "late")])
def test_large_table_is_moved_in_batches_that_are_committed(operation):
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO testapp_step (state, name) {NEW_ROWS.format(rows=ROWS)}")
    batches = []

    def note(execute, statement, params, many, context):
        if statement.startswith("UPDATE"):
            batches.append(context["connection"].savepoint_ids == [])
        return execute(statement, params, many, context)

    began = monotonic()
    with connection.execute_wrapper(note):
        migrate(operation)
    print(f"{ROWS:,} rows: {operation.describe()} took {monotonic() - began:.1f} s")
    assert raw(Step).filter(state="late").count() == ROWS
    assert all(batches)
    assert -(-ROWS // 1000) <= len(batches) <= -(-ROWS // 1000) + 10


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("operation", [RenameState("step", "new", "late"), RemapState("step", "new", "late")])
def test_interrupted_operation_keeps_its_batches_and_does_the_rest_the_next_time(operation, monkeypatch):
    monkeypatch.setattr(operations, "BATCH", 2)
    raw(Step).bulk_create(Step() for _ in range(7))
    move, batches = operations._move_batch, []

    def interrupted(*args):
        batches.append(args)
        if len(batches) == 3:
            raise KeyboardInterrupt
        move(*args)

    monkeypatch.setattr(operations, "_move_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        migrate(operation)
    moved = set(raw(Step).filter(state="late").values_list("pk", flat=True))
    assert len(moved) == 4
    migrate(operation)
    assert raw(Step).filter(state="late").count() == 7
    assert set(raw(Step).values_list("state_version", flat=True)) == {1}


@pytest.mark.django_db(transaction=True)
def test_other_writers_get_the_database_for_as_long_as_a_batch_took(monkeypatch):
    """On a database that has one writer at a time."""
    monkeypatch.setattr(operations, "BATCH", 2)
    raw(Step).bulk_create(Step() for _ in range(4))
    clock, pauses = iter([10.0, 10.1, 20.0, 29.0]), []
    monkeypatch.setattr(operations, "monotonic", lambda: next(clock))
    monkeypatch.setattr(operations, "sleep", pauses.append)
    migrate(RenameState("step", "new", "late"))
    one_writer = not capabilities_of(connection).concurrent_writers
    assert pauses == ([pytest.approx(0.1), 0.25] if one_writer else [])


class Preferred:
    """A database that undoes the first writes of a test, as for a deadlock in which others were preferred."""

    def __init__(self, times):
        self.left = times

    def __call__(self, execute, sql, params, many, context):
        if self.left and sql.startswith("UPDATE"):
            self.left -= 1
            raise OperationalError(1213, "Deadlock found when trying to get lock; try restarting transaction")
        return execute(sql, params, many, context)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("times", "moved"), [(1, True), (operations.TRIES, False)])
def test_batch_that_lost_to_workers_is_written_again(times, moved, monkeypatch):
    monkeypatch.setattr(operations, "MAX_PAUSE", 0.0)
    put_in("older")
    with connection.execute_wrapper(Preferred(times)):
        if moved:
            migrate(RenameState("step", "older", "renewed"))
        else:
            with pytest.raises(OperationalError, match="Deadlock"):
                migrate(RenameState("step", "older", "renewed"))
    assert raw(Step).filter(state="renewed").exists() is moved
