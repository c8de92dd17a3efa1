"""The columns of a managed table: what a new row begins with, and what migrations see."""

import pickle
import re
from copy import copy
from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import FieldError, ValidationError
from django.db import connection, models
from django.db.migrations.state import ModelState
from django.forms import modelform_factory
from django.test.utils import CaptureQueriesContext, isolate_apps
from django.utils import timezone

from stator.db.interface import new_token
from stator.models import StatorModel
from stator.rows import state_column
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.state_column import StateField
from stator.statements import JsonText
from stator.testing import advance, drain
from stator.worker.executor import _outcome
from tasks.graph import TaskGraph
from tasks.models import Task
from tests.stator.making import ago, bulk, change, claim_all, operations_of, put, raw, row
from tests.tasks.actions.making import make
from tests.testapp.basic import Page, Step, StepGraph
from tests.testapp.models import Line, LineGraph

pytestmark = pytest.mark.django_db


def test_new_row_is_ready_in_the_initial_state():
    line = Line.objects.create(name="a")
    assert line.state == LineGraph.first
    assert isinstance(line.state, str)
    found = row(line)
    assert (found.state, found.state_ready, found.state_version) == ("first", True, 0)
    assert (found.state_attempts, found.state_failures, found.state_crashes) == (0, 0, 0)
    assert (found.state_claim, found.state_locked_until, found.state_next_attempt) == (None, None, None)
    assert found.state_attempted is None
    assert abs(timezone.now() - found.state_changed) < timedelta(seconds=30)


@pytest.mark.parametrize("state", ["late", StepGraph.late])
def test_row_born_in_a_state_with_a_first_delay_is_due_after_its_interval(state):
    step = Step.objects.create(state=state)
    found = row(step)
    assert (found.state, found.state_ready) == ("late", False)
    assert timedelta(seconds=55) < found.state_next_attempt - timezone.now() < timedelta(seconds=65)


def test_unknown_state_is_refused_with_the_names_there_are():
    for create in (Step.objects.create, lambda **values: Step(**values).save()):
        with pytest.raises(ValueError, match="'nowhere' is not a state of StepGraph; its states are new, slow, late"):
            create(state="nowhere")


COPIES = [
    lambda step: step.save(),
    lambda step: Step.objects.bulk_create([step]),
    lambda step: Step.objects.bulk_create([step], ignore_conflicts=True),
]


BEFALLEN = {
    "state_ready": False, "state_changed": ago(86400), "state_attempted": ago(50), "state_next_attempt": ago(-3600),
    "state_attempts": 7, "state_failures": 6, "state_crashes": 5, "state_version": 4,
}  # fmt: skip


def begun(step):
    names = ("state_attempted", "state_attempts", "state_failures", "state_crashes", "state_version")
    return [getattr(step, name) for name in names]


@pytest.mark.parametrize("copy", COPIES, ids=["save", "bulk_create", "bulk_create with conflicts"])
@pytest.mark.parametrize(("state", "ready"), [("new", True), ("late", False), ("done", False)])
def test_copy_of_a_quarantined_row_begins_as_a_new_row(copy, state, ready):
    original = put(Step, state=state, **BEFALLEN)
    change(original, state_claim=new_token("0" * 12), state_locked_until=ago(-60))
    step = raw(Step).get()
    step.pk, step._state.adding = None, True
    copy(step)
    made = raw(Step).exclude(pk=original.pk).get()
    assert (made.state, made.state_ready, begun(made)) == (state, ready, [None, 0, 0, 0, 0])
    assert (made.state_claim, made.state_locked_until) == (None, None)
    assert timezone.now() - made.state_changed < timedelta(seconds=30)
    if state == "late":
        assert timedelta(seconds=55) < made.state_next_attempt - timezone.now() < timedelta(seconds=65)
    else:
        assert made.state_next_attempt is None
    assert row(original).state_crashes == 5
    assert row(original).state_claim
    step.state = "failed"
    step.save()
    assert row(step).state == "failed"


def test_copy_that_a_handler_makes_is_not_held_by_its_claim():
    original = put(Step)
    [claim] = claim_all(operations_of(Step))
    step = claim.instance
    step.__dict__["stator"] = claim
    step.pk, step._state.adding = None, True
    step.save()
    assert not step.stator
    step.save()
    assert row(original).state_claim == claim.token


def test_state_is_accepted_wherever_a_value_is():
    line = Line.objects.create(state=LineGraph.second)
    assert Line.objects.get(state=LineGraph.second) == line
    assert Line.objects.filter(state__in=[LineGraph.second, "first"]).count() == 1
    assert Line.objects.filter(state__in={LineGraph.first}).count() == 0
    assert Line.objects.exclude(state=LineGraph.second).count() == 0
    assert Line.objects.exclude(state__in=[LineGraph.first]).get() == line
    assert Line.objects.filter(models.Q(state=LineGraph.second)).count() == 1
    assert Line.objects.filter(state__startswith="sec").count() == 1
    assert dict(Line.objects.values_list("state", "pk")) == {LineGraph.second: line.pk}
    when = models.When(state=LineGraph.second, then=models.Value(1))
    assert Line.objects.annotate(n=models.Case(when, default=0, output_field=models.IntegerField())).get().n == 1


def test_defaults_are_in_the_database_too():
    columns = [field.column for field in Line._meta.fields if field.column in ("state", "name")]
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO testapp_line ({', '.join(columns)}) VALUES ('first', 'by another program')")
    found = raw(Line).get()
    assert (found.state_ready, found.state_version, found.state_attempts) == (True, 0, 0)
    assert abs(timezone.now() - found.state_changed) < timedelta(seconds=30)


def test_migrations_know_of_the_graph_the_names_of_its_states_only():
    state = ModelState.from_model(Line)
    field = state.fields["state"]
    name, path, args, kwargs = field.deconstruct()
    assert (path, args) == ("django.db.models.CharField", [])
    names = sorted(LineGraph.states)
    choices = [(name, name) for name in names]
    assert kwargs == {"choices": choices, "default": "first", "editable": False, "max_length": 100}
    for field in state.fields.values():
        assert field.deconstruct()[1].startswith("django.db.models.")


@pytest.mark.parametrize("graph", [None, "LineGraph", LineGraph.first, object, StatorModel])
def test_field_without_a_graph_is_refused(graph):
    with pytest.raises(TypeError, match=r"StateField\(\) takes a StateGraph subclass, not "):
        StateField(graph)


def test_unknown_state_is_no_valid_value():
    step = Step.objects.create()
    for instance in (step, Step()):
        instance.state = "nowhere"
        with pytest.raises(ValidationError) as refused:
            instance.full_clean()
        assert refused.value.message_dict["state"][0].startswith(
            "'nowhere' is not a state of StepGraph; its states are"
        )
    # But the one is in which it was loaded.
    change(step, state="of tomorrow")
    step.refresh_from_db()
    step.full_clean()


def test_state_that_only_the_framework_enters_is_valid_where_a_save_takes_it(monkeypatch):
    monkeypatch.setattr(StepGraph.done, "enter_by_hand", False)
    born = Step(state="done")
    born.full_clean()
    born.save()
    born.full_clean()
    moved = Step.objects.create()
    moved.state = StepGraph.done
    with pytest.raises(ValidationError, match=r"StepGraph\.done can be entered only by the framework"):
        moved.full_clean()


@isolate_apps("tests.testapp")
def test_editable_state_is_checked_by_forms():
    class Open(StatorModel):
        state = StateField(StepGraph, editable=True)

        class Meta:
            app_label = "testapp"

    form = modelform_factory(Open, fields=["state"])
    assert form({"state": "done"}).is_valid()
    assert "is not one of the available choices" in form({"state": "nowhere"}).errors["state"][0]
    with pytest.raises(FieldError, match="non-editable"):
        modelform_factory(Step, fields=["state"])


# An INSERT leaves out the framework's columns; rows and objects are the same as if it named them


LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def named(queries):
    inserted = (re.match(r'INSERT INTO ["`]\w+["`] \(([^)]*)\)', query["sql"]) for query in queries)
    return [FRAMEWORK_COLUMNS & set(re.findall(r"\w+", found[1])) for found in inserted if found]


def columns_of(instance):
    return {name: getattr(instance, name) for name in sorted(FRAMEWORK_COLUMNS)}


def test_new_objects_name_none_of_the_frameworks_columns_and_are_as_their_rows():
    with CaptureQueriesContext(connection) as queries:
        page = Page.objects.create(title="a")
    assert named(queries) == [set()]
    assert columns_of(page) == columns_of(row(page))
    assert (page.state_ready, page.state_version, page.state_claim) == (True, 0, None)
    assert 0 <= (datetime.now(UTC) - page.state_changed).total_seconds() < 60
    with CaptureQueriesContext(connection) as queries:
        pages = Page.objects.bulk_create(bulk(*(Page(title=str(number)) for number in range(20))))
    assert named(queries) == [set()]
    assert [columns_of(page) for page in pages] == [columns_of(row(page)) for page in pages]


@pytest.mark.parametrize(
    ("state", "ready", "is_due"), [("late", False, True), ("outside", False, False), ("done", False, False)]
)
@pytest.mark.parametrize("many", [False, True])
def test_state_that_is_not_attempted_at_once_is_named_in_the_insert(state, ready, is_due, many):
    step = Step.objects.bulk_create(bulk(Step(state=state)))[0] if many else Step.objects.create(state=state)
    found = row(step)
    assert (found.state, found.state_ready, found.state_next_attempt is not None) == (state, ready, is_due)
    assert step.state_ready == ready


def assigned(**columns):
    step = Step()
    for name, value in columns.items():
        setattr(step, name, value)
    step.save()
    return step


STARTED_LATER = {
    "create": lambda **columns: Step.objects.create(**columns),
    "acreate": lambda **columns: awaited(Step.objects.acreate, **columns),
    "assigned": assigned,
    "asave": lambda **columns: saved_by_async_code(Step(**columns)),
    "get_or_create": lambda **columns: Step.objects.get_or_create(name="a", defaults=columns)[0],
    "bulk_create": lambda **columns: Step.objects.bulk_create(bulk(Step(), Step(**columns)))[1],
    "abulk_create": lambda **columns: awaited(Step.objects.abulk_create, bulk(Step(**columns)))[0],
    "ignore_conflicts": lambda **columns: conflicting(Step(**columns)),
}


@async_to_sync
async def awaited(function, *args, **kwargs):
    return await function(*args, **kwargs)


def saved_by_async_code(step):
    awaited(step.asave)
    return step


def conflicting(step):
    Step.objects.bulk_create([step], ignore_conflicts=True)
    return raw(Step).get()


@pytest.mark.parametrize("create", STARTED_LATER.values(), ids=STARTED_LATER)
@pytest.mark.parametrize("state", ["new", "late"])
def test_object_that_is_created_to_start_later_is_not_attempted_before(create, state):
    due = ago(-3600)
    step = create(state_next_attempt=due, state=state)
    found = row(step)
    assert (found.state, found.state_ready, found.state_next_attempt) == (state, False, due)
    assert not step.state_ready
    raw(Step).exclude(pk=step.pk).delete()
    assert drain(Step) == 0
    advance(3601, Step)
    assert drain(Step) == 1


def test_start_that_is_past_is_now():
    step = Step.objects.create(state_next_attempt=ago(60))
    assert drain(Step) == 1
    assert row(step).state == "done"


def test_of_many_that_differ_each_has_its_own():
    steps = [Step(), Step(state="done"), Step(state_changed=LONG_AGO), Step(state_next_attempt=ago(-60))]
    with CaptureQueriesContext(connection) as queries:
        made = Step.objects.bulk_create(bulk(*steps))
    assert named(queries) == [{"state_ready", "state_changed", "state_next_attempt"}]
    new, done, old, later = (row(step) for step in made)
    assert (new.state_ready, done.state_ready) == (True, False)
    assert (old.state_changed, new.state_next_attempt) == (LONG_AGO, None)
    assert (later.state_ready, later.state_next_attempt) == (False, steps[3].state_next_attempt)


def test_insert_into_an_unmanaged_table_names_every_column(monkeypatch):
    monkeypatch.setattr(Page._meta, "managed", False)
    with CaptureQueriesContext(connection) as queries:
        page = Page.objects.create(title="a")
    [columns] = named(queries)
    # That one Django leaves out itself from 6.0 on.
    assert columns | {"state_changed"} == FRAMEWORK_COLUMNS
    assert columns_of(page) == columns_of(row(page))


def test_query_for_a_state_that_the_graph_lacks_is_logged_once(caplog, monkeypatch):
    monkeypatch.setattr(state_column, "_noted", set())
    for _ in range(2):
        assert not Line.objects.filter(state="fisrt").exists()
    assert not Line.objects.exclude(state__in=["first", "second"]).filter(state__contains="fir").exists()
    [told] = [each for each in caplog.records if each.message == "stator.unknown_state"]
    assert (told.graph, told.state) == ("LineGraph", "fisrt")
    assert "its states are first, second" in told.hint


class TestLazyJson:
    @pytest.fixture
    def claim(self):
        data = {"a": [1, {"b": None}], "c": '\u00e4"\\'}
        task = make("echo", data, metadata={"shop": "x"})
        (claim,) = operations_of(Task).claim([TaskGraph.pending], 1)
        assert claim.pk == task.pk
        return claim

    def test_value_is_the_one_that_django_reads(self, claim):
        found, task = Task.objects.get(pk=claim.pk), claim.instance
        with CaptureQueriesContext(connection) as queries:
            for name in ("data", "metadata", "worker_ids", "result"):
                assert getattr(task, name) == getattr(found, name)
                assert getattr(task, name) is getattr(task, name)
        assert not queries

    @pytest.mark.postgresql
    def test_what_nobody_reads_is_not_parsed(self, claim, monkeypatch):
        field, parsed = Task._meta.get_field("data"), []
        for each in ("data", "metadata", "worker_ids", "result"):
            monkeypatch.setitem(Task._meta.get_field(each).__dict__, "parse", parsed.append)
        assert claim.instance.get_deferred_fields() == set()
        assert parsed == []
        assert claim.instance.data is None
        assert parsed == [claim.instance.__dict__[field.text_key]]

    def test_unread_values_are_saved_copied_and_read_again_like_others(self, claim):
        task = claim.instance
        expected = Task.objects.get(pk=claim.pk).data
        assert pickle.loads(pickle.dumps(copy(task))).data == expected
        raw(Task).update(metadata={"shop": "y"})
        task.refresh_from_db(fields=["metadata"])
        assert task.metadata == {"shop": "y"}
        raw(Task).update(data=5)
        task.refresh_from_db()
        assert task.data == 5
        task.save()
        assert (raw(Task).get().data, raw(Task).get().metadata) == (5, {"shop": "y"})
        # A text is a value that is parsed when it is read.
        task.data = JsonText('{"a": 1}')
        task.save(update_fields=["data"])
        assert raw(Task).get().data == task.data == {"a": 1}

    @pytest.mark.parametrize("result", [None, 5, JsonText("[1]")])
    def test_state_saves_it_only_if_it_was_set(self, claim, result):
        if result is not None:
            claim.instance.result = result
        outcome = _outcome(claim, "completed")
        # Without the vendor's statement all values are parsed.
        if result is not None or connection.vendor == "postgresql":
            assert outcome.values == (None if result is None else {"result": result})
        assert not claim.operations.record([(claim, outcome)]).lost
        assert raw(Task).get().result == ([1] if result == "[1]" else result)

    def test_values_and_texts_are_recorded_together(self):
        for _ in range(4):
            make("echo")
        operations = operations_of(Task)
        claims = operations.claim([TaskGraph.pending], 4)
        for claim, value in zip(claims, [JsonText('"a"'), {"b": 1}, None, "c"], strict=True):
            if value is not None:
                claim.instance.result = value
        assert not operations.record([(claim, _outcome(claim, "completed")) for claim in claims]).lost
        assert list(raw(Task).order_by("pk").values_list("result", flat=True)) == ["a", {"b": 1}, None, "c"]
