"""The columns of a managed table: what a new row begins with, and what migrations see."""

from datetime import timedelta

import pytest
from django.core.exceptions import FieldError, ValidationError
from django.db import connection, migrations, models
from django.db.migrations.state import ModelState, ProjectState
from django.forms import modelform_factory
from django.test.utils import isolate_apps
from django.utils import timezone

from stator.db.interface import new_token
from stator.models import StatorModel
from stator.rows.fields import StateField
from tests.stator.making import ago, change, claim_all, operations_of, put, raw, row
from tests.testapp.basic import Step, StepGraph
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


@pytest.mark.parametrize("state", ["outside", "done", StepGraph.failed])
def test_row_born_where_nothing_is_attempted_is_never_ready(state):
    found = row(Step.objects.create(state=state))
    assert (found.state, found.state_ready, found.state_next_attempt) == (str(state), False, None)


@pytest.mark.parametrize(
    "create", [Step.objects.create, lambda **values: Step(**values).save()], ids=["create", "save"]
)
def test_unknown_state_is_refused_with_the_names_there_are(create):
    with pytest.raises(ValueError, match="'nowhere' is not a state of StepGraph; its states are new, slow, late"):
        create(state="nowhere")


def test_bulk_create_begins_rows_as_create_does():
    Step.objects.bulk_create([Step(), Step(state=StepGraph.late), Step(state="done")])
    rows = raw(Step).order_by("pk")
    assert [(found.state, found.state_ready) for found in rows] == [("new", True), ("late", False), ("done", False)]
    assert [found.state_next_attempt is None for found in rows] == [True, False, True]


COPIES = [
    lambda step: step.save(force_insert=True),
    lambda step: Step.objects.bulk_create([step]),
    lambda step: Step.objects.bulk_create([step], ignore_conflicts=True),
]
each_copy = pytest.mark.parametrize("copy", COPIES, ids=["save", "bulk_create", "bulk_create with conflicts"])


@each_copy
def test_copy_of_a_leased_row_is_not_leased(copy):
    original = put(Step, state_claim=new_token("0" * 12), state_locked_until=ago(-60), state_ready=False)
    step = raw(Step).get()
    step.pk, step._state.adding = None, True
    copy(step)
    assert raw(Step).count() == 2
    made = raw(Step).exclude(pk=original.pk).get()
    assert (made.state_claim, made.state_locked_until) == (None, None)
    assert row(original).state_claim == original.state_claim


BEFALLEN = {
    "state_ready": False, "state_changed": ago(86400), "state_attempted": ago(50), "state_next_attempt": ago(-3600),
    "state_attempts": 7, "state_failures": 6, "state_crashes": 5, "state_version": 4,
}  # fmt: skip


def begun(step):
    """Return the values of a row in the columns that an attempt writes."""
    names = ("state_attempted", "state_attempts", "state_failures", "state_crashes", "state_version")
    return [getattr(step, name) for name in names]


@each_copy
@pytest.mark.parametrize(("state", "ready"), [("new", True), ("late", False), ("done", False)])
def test_copy_of_a_quarantined_row_begins_as_a_new_row(copy, state, ready):
    original = put(Step, state=state, **BEFALLEN)
    step = raw(Step).get()
    step.pk, step._state.adding = None, True
    copy(step)
    made = raw(Step).exclude(pk=original.pk).get()
    assert (made.state, made.state_ready, begun(made)) == (state, ready, [None, 0, 0, 0, 0])
    assert timezone.now() - made.state_changed < timedelta(seconds=30)
    if state == "late":
        assert timedelta(seconds=55) < made.state_next_attempt - timezone.now() < timedelta(seconds=65)
    else:
        assert made.state_next_attempt is None
    assert row(original).state_crashes == 5


def test_what_is_created_now_and_saved_again_under_another_key_begins_as_a_new_row():
    step = Step.objects.create()
    change(step, **BEFALLEN)
    step.refresh_from_db()
    step.pk = None
    step.save()
    assert (step.state_ready, begun(step)) == (True, [None, 0, 0, 0, 0])
    assert Step.objects.count() == 2
    step.state = "done"
    step.save()
    assert (row(step).state, row(step).state_version) == ("done", 1)


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
    assert Line.objects.filter(models.Q(state=LineGraph.second)).count() == 1
    assert Line.objects.filter(state__startswith="sec").count() == 1
    assert dict(Line.objects.values_list("state", "pk")) == {LineGraph.second: line.pk}
    when = models.When(state=LineGraph.second, then=models.Value(1))
    assert Line.objects.annotate(n=models.Case(when, default=0, output_field=models.IntegerField())).get().n == 1


def test_rows_in_an_unknown_state_can_be_asked_for_and_loaded():
    change(Line.objects.create(), state="of tomorrow")
    assert Line.objects.get(state="of tomorrow").state == "of tomorrow"


def test_defaults_are_in_the_database_too():
    columns = [field.column for field in Line._meta.fields if field.column in ("state", "name")]
    with connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO testapp_line ({', '.join(columns)}) VALUES ('first', 'by another program')")
    found = raw(Line).get()
    assert (found.state_ready, found.state_version, found.state_attempts) == (True, 0, 0)
    assert abs(timezone.now() - found.state_changed) < timedelta(seconds=30)


def test_framework_columns_are_in_no_form():
    editable = {field.name for field in Line._meta.fields if field.editable}
    assert editable == {"id", "name"}


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


def test_field_takes_the_options_that_old_migrations_pass():
    field = StateField(choices=[("x", "x")], default="outdated", graph=LineGraph, max_length=100)
    assert field.get_default() == "first"
    operation = migrations.CreateModel("Older", [("id", models.AutoField(primary_key=True)), ("state", field)])
    state = ProjectState()
    operation.state_forwards("testapp", state)
    assert state.apps.get_model("testapp", "Older")(state=LineGraph.last).state == "last"


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


def test_object_is_valid_in_the_state_in_which_it_was_loaded():
    for state in ("of tomorrow", "done"):
        change(step := Step.objects.create(), state=state)
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
