"""``PartitionByTime``: a table gets partitions and loses nothing, and becomes an ordinary one again."""

import pytest
from django.core.management.base import CommandError
from django.db import transaction

from stator.extensions.partitions import conversion, upkeep
from stator.extensions.partitions.tables import is_partitioned
from stator.models import History, Stats
from tests.sizes import PATIENCE
from tests.stator.dividing import convert, divided, execute, names, other_session, shape
from tests.stator.making import ago, begun_beside

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.postgresql]

DAY = 86400.0
LABELS = {"stator.History": "stator_history", "stator.Stats": "stator_stats", "tasks.Run": "tasks_run"}


def event(age=0.0):
    return History.objects.create(model_label="x", object_pk="1", version=1, source="a", at=ago(age))


@pytest.mark.parametrize(("label", "period"), list(zip(LABELS, ["day", "week", "month"], strict=True)))
def test_a_table_has_partitions_and_then_is_as_before(label, period):
    table = LABELS[label]
    before = shape(table)
    with divided(label, period):
        columns, constraints = shape(table)
        assert columns == before[0]
        # Names stay, so later migrations find the indexes.
        assert constraints.keys() == before[1].keys()
    assert shape(table) == before


def test_rows_and_their_numbers_stay():
    old = [event(DAY * days) for days in (400, 40, 0)]
    with divided("stator.History"):
        assert list(History.objects.order_by("pk")) == old
        new = event()
        assert new.pk == old[-1].pk + 1
        assert History.objects.get(pk=new.pk) == new
    assert list(History.objects.order_by("pk")) == [*old, new]
    assert event().pk == new.pk + 1
    # The way back is taken once, even if it had not been recorded.
    before = execute("SELECT 'stator_history'::regclass::oid")
    convert("stator.History", backwards=True)
    assert execute("SELECT 'stator_history'::regclass::oid") == before


def test_programs_write_while_a_conversion_waits_for_its_turn(monkeypatch):
    monkeypatch.setattr(conversion, "MAX_PAUSE", 0.01)
    given = {"source": "a", "to": "b", "shard": 1, "handled": 1}
    with transaction.atomic():
        Stats.add("default", "x", **given)
        converting = begun_beside(lambda: convert("stator.Stats"))
        Stats.add("default", "x", **given)
        assert not converting.done()
    try:
        converting.result(PATIENCE)
        # Still one row for each edge.
        Stats.add("default", "x", **given)
        assert Stats.objects.get().handled == 3
        assert names(Stats)
    finally:
        convert("stator.Stats", backwards=True)


def test_statements_that_programs_prepared_before_write_the_new_table():
    with other_session() as program:
        program.execute(
            "PREPARE record AS INSERT INTO stator_history (model_label, object_pk, at, version, kind, source, "
            '"to", actor, reason, worker, attempts, error, fingerprint) '
            "VALUES ('x', '1', now() + $1::interval, 1, 'hand', 'a', '', '', '', '', 0, '', '')"
        )
        program.execute("EXECUTE record('0')")
        program.execute("COMMIT")
        with divided("stator.History", "day"):
            # This one is not for the former table, which is the first partition.
            program.execute("EXECUTE record('3 days')")
            assert History.objects.count() == 2


def test_a_table_in_use_all_the_time_is_refused(monkeypatch):
    monkeypatch.setattr(conversion, "TRIES", 2)
    monkeypatch.setattr(upkeep, "WAIT", 0.05)
    monkeypatch.setattr(conversion, "MAX_PAUSE", 0.01)
    build = conversion.Conversion._replace_unique
    with other_session() as program:

        def built(self, keys):
            replaced = build(self, keys)
            program.execute("SELECT 1 FROM stator_stats")
            return replaced

        monkeypatch.setattr(conversion.Conversion, "_replace_unique", built)
        with pytest.raises(CommandError, match="stator_stats was in use at each of 2 tries"):
            convert("stator.Stats")
    monkeypatch.undo()
    assert not is_partitioned(Stats, "default")
    with divided("stator.Stats"):
        assert is_partitioned(Stats, "default")


def test_an_interrupted_conversion_is_begun_anew():
    execute("CREATE UNIQUE INDEX stator_new_0_history ON stator_history (id)")
    execute("ALTER TABLE stator_history ADD CONSTRAINT stator_before CHECK (at < '2020-01-01') NOT VALID")
    with divided("stator.History"):
        # And once more, as if the migration had not been recorded.
        convert("stator.History")
        with pytest.raises(CommandError, match=r"divided in another way already, into \d partitions by at\. Reverse"):
            convert("stator.History", "day")
        assert event().pk
        assert "stator_before" not in shape("stator_history")[1]


def test_what_cannot_be_converted_is_named():
    with pytest.raises(CommandError, match=r"stator\.Report cannot be divided by time"):
        convert("stator.Report")
    with pytest.raises(CommandError, match="give the migration atomic = False"):
        convert("stator.History", atomic=True)
    event(-30 * DAY)
    with pytest.raises(CommandError, match="rows of the future, up to"):
        convert("stator.History")
    History.objects.all().delete()
    execute("CREATE VIEW seen AS SELECT id FROM stator_history")
    try:
        with pytest.raises(CommandError, match="the view seen refers to the table stator_history"):
            convert("stator.History")
    finally:
        execute("DROP VIEW seen")
