"""What is read of the rows: counts, ages and what nothing moves; bounded, and without a write."""

from datetime import timedelta

import pytest
from django.db import DatabaseError, connection, models
from django.test.utils import isolate_apps
from django.utils import timezone

from stator.commands.answer import BadInput
from stator.db.looks import reading
from stator.extensions.adopt import table
from stator.extensions.adopt.table import clock_of, look_at_rows
from stator.extensions.adopt.target import Target, target_of
from tests.stator.making import model_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def target():
    """A column of a table with 40 rows: 30 are sent, and of 10 that are queued 4 are old."""
    with isolate_apps("tests.testapp"):

        class Casefile(models.Model):
            status = models.IntegerField(null=True)
            updated_at = models.DateTimeField(null=True)

            class Meta:
                app_label = "testapp"

        with connection.schema_editor() as editor:
            editor.create_model(Casefile)
        try:
            now = timezone.now()
            ages = [(1, 0)] * 30 + [(2, 0)] * 6 + [(2, 9)] * 3 + [(2, 41)]
            Casefile.objects.bulk_create(
                Casefile(status=status, updated_at=now - timedelta(days=days)) for status, days in ages
            )
            yield Target(Casefile, Casefile._meta.get_field("status"))
        finally:
            with connection.schema_editor() as editor:
                editor.delete_model(Casefile)


def look(target, *, most=1000, seconds=30.0, timed=True):
    clock = clock_of(target, None) if timed else None
    return look_at_rows(target, "default", clock=clock, idle=86400.0, most=most, seconds=seconds)


def test_each_value_has_its_rows_its_ages_and_how_many_nothing_moves(target):
    found = look(target)
    assert found.clock.name == "updated_at"
    [sent, queued] = found.values
    assert (sent.value, sent.rows, sent.unmoved) == (1, 30, 0)
    assert (queued.value, queued.rows, queued.unmoved) == (2, 10, 4)
    assert queued.oldest == pytest.approx(41 * 86400, abs=600)
    assert queued.newest < 600
    assert (found.whole, found.read, found.least) == (True, 40, 40)


def test_without_a_time_the_rows_are_counted(target):
    found = look(target, timed=False)
    assert [(each.value, each.rows, each.oldest, each.unmoved) for each in found.values] == [
        (1, 30, None, None), (2, 10, None, None),
    ]  # fmt: skip


def test_rows_without_a_value_or_a_time_count(target):
    target.model.objects.create()
    [none] = [each for each in look(target).values if each.value is None]
    assert (none.rows, none.oldest, none.unmoved) == (1, None, 0)


def test_of_a_larger_table_the_first_and_the_last_rows_are_read_and_said_to_be_a_part(target):
    found = look(target, most=20)
    assert [(each.value, each.rows, each.shown) for each in found.values] == [(1, 10, "10+ rows"), (2, 10, "10+ rows")]
    assert (found.whole, found.read, found.least) == (False, 20, 21)


def test_if_the_time_is_not_enough_fewer_rows_are_read(target, monkeypatch):
    asked = []
    counted = table._counted

    def slow(rows, *given, **options):
        asked.append(rows.count())
        return counted(rows if len(asked) > 1 else rows.filter(pk__in=[_sleeping()]), *given, **options)

    monkeypatch.setattr(table, "_counted", slow)
    monkeypatch.setattr(table, "PARTS", (1, 2))
    found = look(target, most=20, seconds=0.2)
    assert asked == [20, 10]
    assert (found.whole, found.read) == (False, 10)


def _sleeping():
    """Something that takes longer than the limit, on each database."""
    endless = (
        "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 900000000) "
        "SELECT max(n) FROM numbers"
    )
    statement = {"postgresql": "SELECT pg_sleep(60)", "mysql": "SELECT sleep(60)"}.get(connection.vendor, endless)
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0]


def test_table_that_cannot_be_read_in_time_is_refused_with_the_remedy(target, monkeypatch):
    monkeypatch.setattr(table, "_counted", lambda *given, **options: _sleeping())
    with pytest.raises(BadInput, match=r"could not be read in .*; give more time by --seconds"):
        look(target, seconds=0.1)


def test_column_with_many_values_is_no_status(target):
    target.model.objects.bulk_create(target.model(status=number) for number in range(100))
    with pytest.raises(BadInput, match="more than 50 values, so it is no status"):
        look(target)


def test_column_of_a_managed_model_is_refused():
    with pytest.raises(BadInput, match=r"testapp.Line is managed already; see manage.py stator status testapp.Line"):
        target_of("testapp.Line.state")


def test_database_refuses_a_write_while_the_report_reads(target):
    with pytest.raises(DatabaseError), reading("default"):
        target.model.objects.update(status=3)
    assert not target.model.objects.filter(status=3).exists()
    target.model.objects.update(status=3)
    assert target.model.objects.filter(status=3).count() == 40


def test_best_column_with_a_time_is_taken_and_said():
    def best(column="status", name=None, **times):
        status, stage = (models.CharField(max_length=9) for _ in range(2))
        with isolate_apps("tests.testapp"):
            model = model_of("Note", models.Model, status=status, stage=stage, **times)
        clock = clock_of(Target(model, model._meta.get_field(column)), name)
        return clock and (clock.name, clock.means)

    def moment(**options):
        return models.DateTimeField(**options)

    many = {"made": moment(auto_now_add=True), "saved": moment(auto_now=True), "status_changed": moment()}
    few = {"created": moment(), "seen": moment(null=True)}
    assert best(**many) == ("status_changed", "since status changed, by its name")
    assert best("stage", **many) == ("saved", "since the last save of the row; update() may leave it out")
    assert best(**few) == ("created", "since the row was created, not since it moved")
    assert best(name="seen", **few) == ("seen", "the given column")
    assert best(seen=moment(null=True)) is None
    with pytest.raises(BadInput, match=r"--by 'sen' is not a DateTimeField of testapp.Note; did you mean 'seen'"):
        best(name="sen", **few)
