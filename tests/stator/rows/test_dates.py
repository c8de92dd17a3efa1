"""Dates of rows as graphs declare them: what is refused, and how objects explain them."""

import re
from collections import Counter
from datetime import timedelta

import pytest
from django.db import models
from django.db.models import F
from django.db.models.functions import Coalesce, Now
from django.test.utils import isolate_apps

from stator.admin.row_summary import situation, timeout
from stator.checks.tables import check_expressions
from stator.db.tables import wrong_expression
from stator.exceptions import GraphError
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel, Worker
from stator.querysets import OperatorQuerySet
from stator.rows.clock import moment_text
from stator.rows.dates import deadlines_of, problem_of, starts_of
from stator.survey.conditions import parts_of
from tests.stator.explain.errands import WORKER
from tests.stator.making import ago, put, row
from tests.testapp.dated import Circular, Watch
from tests.testapp.power import Order

pytestmark = pytest.mark.django_db


def graph_with(**options):
    class Dated(StateGraph):
        up = State(externally_progressed=True)
        down = State()
        up.times_out_to(down, **options)

    return Dated


def graph_attempted(at, **options):
    class Attempted(StateGraph):
        new = State(try_interval=60, try_at=at, **options)
        done = State()
        new.transitions_to(done)

        @classmethod
        def handle_new(cls, instance):
            return cls.done

    return Attempted


# What is declared wrongly


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"at": "alert after"}, "at='alert after' must be the name of a DateTimeField of the model, or an expression"),
        ({"at": 5}, "at=5 must be the name"),
        ({"at": "due", "seconds": 5}, "has seconds and at; give one of them"),
        ({}, "seconds=None must be a number"),
    ],
)
def test_wrong_date_names_the_edge(options, words):
    with pytest.raises(GraphError, match=rf"^Dated\.up\.times_out_to\(down\): {words}"):
        graph_with(**options)


WRONG = {
    "alert_aftr": "Kept has no field 'alert_aftr'; did you mean 'alert_after'?",
    "name": "'name' is a CharField; it must be a DateTimeField, which has a time of day",
    "state_changed": "Kept has no field 'state_changed'",
    F("nothing") + timedelta(days=1): "Cannot resolve keyword 'nothing' into field",
    Coalesce(F("alert_after"), Now()): "no index can have the present time, chance or other rows; give columns of the",
    F("day"): "day is a DateField; it must be a DateTimeField",
}


DECLARED = {
    "Dated.up.times_out_to(down, at=...)": (lambda at: graph_with(at=at), deadlines_of),
    "Attempted.new: try_at": (graph_attempted, starts_of),
}


@pytest.mark.parametrize("where", DECLARED)
@pytest.mark.parametrize(("at", "words"), WRONG.items(), ids=map(str, WRONG))
@isolate_apps("tests.testapp")
def test_check_says_in_one_line_what_is_wrong_with_a_date_and_where(at, words, where):
    make, dates_of = DECLARED[where]

    class Kept(StatorModel):
        name = models.CharField(max_length=10)
        day = models.DateField(null=True)
        alert_after = models.DateTimeField(null=True)
        state = StateField(make(at))

        class Meta:
            app_label = "testapp"

    [found] = check_expressions(Kept)
    assert found.id == "stator.E110"
    assert found.msg.startswith(f"{where}: {words}")
    assert "\n" not in found.msg
    assert wrong_expression(Kept, "default").startswith(f"{where}: {words}")
    assert not dates_of(Kept)
    assert not [index for index in Kept._meta.indexes if index.name.startswith(("st_at", "st_try"))]


def test_wrong_option_names_the_state_and_the_date_of_a_related_row_is_refused():
    with pytest.raises(GraphError, match=r"^Attempted\.new: try_at='alert after' must be the name of a DateTimeField"):
        graph_attempted("alert after")
    with pytest.raises(GraphError, match=r"^Attempted\.new: workers do not attempt its objects; remove try_at"):
        graph_attempted("alert_after", externally_progressed=True)
    words = "Joined field references are not permitted in this query; give columns of Order alone"
    assert problem_of(Order, F("customer__blocked") + timedelta(days=1)) == words


# What is told of it


@pytest.fixture
def crew():
    """A live worker that serves the models."""
    labels = ["testapp.watch", "testapp.offer", "testapp.circular"]
    return Worker.objects.create(id=WORKER, host="oak", pid=4242, version="1", models=labels, database="default")


def test_object_explains_when_it_times_out_and_by_which_column(crew):
    watch = put(Watch, alert_after=ago(-299.5))
    [reason, *_] = watch.explain()
    moment = moment_text(row(watch).alert_after)
    told = rf"; it times out to down at {re.escape(moment)} \(in 4 m \d+ s\), from alert_after\."
    assert re.search(f"{told}$", reason.sentence)
    assert reason.numbers["times_out_in"] == pytest.approx(299, abs=10)
    assert reason.numbers["times_out_by"] == "alert_after"
    [reason, *_] = put(Watch, alert_after=ago(62)).explain()
    assert re.search(r"; it timed out 1 m \d+ s ago, by alert_after", reason.sentence)
    [reason, *_] = put(Watch).explain()
    assert reason.sentence.endswith("; it does not time out to down, since alert_after is null.")
    assert reason.numbers["times_out_in"] is None


def test_object_explains_when_it_is_attempted_and_by_which_column(crew):
    def first(**given):
        [reason, *_] = put(Circular, **given).explain()
        # However long the machine takes for this.
        return reason, re.sub(r" \d+ s\b", "", reason.sentence.partition("; it does not time out")[0])

    reason, sentence = first(send_after=ago(-299.5))
    assert (reason.code, sentence) == ("not_due", "Not due yet: the next attempt is in 4 m, from send_after")
    assert reason.numbers["due_by"] == "send_after"
    assert reason.remedy == "Wait, or change the date, which a retry does not override."
    _, sentence = first(send_after=ago(-299.5), state_ready=False, state_next_attempt=ago(-50), state_failures=2)
    assert sentence == "Backing off after 2 errors; next attempt in 4 m, from send_after"
    reason, sentence = first(send_after=ago(-50), state_ready=False, state_next_attempt=ago(-99.5))
    assert (sentence, reason.remedy) == ("Not due yet: the next attempt is in 1 m", "Wait, or retry now.")
    assert first(send_after=ago(-299.5), state_ready=True)[0].code == "not_due"
    assert first()[0].code == first(send_after=ago(1))[0].code == "in_line"
    _, sentence = first(send_after=ago(100), state_ready=False, state_changed=ago(7200))
    assert sentence == "Due for 1 m, and no worker has marked it ready."


def test_many_objects_are_counted_by_the_reason_that_each_of_them_gives(crew):
    made = [put(Circular, send_after=at) for at in (None, ago(1), ago(-60), ago(-70))]
    made.append(put(Circular, send_after=ago(-60), state_ready=True))
    made.append(put(Circular, send_after=ago(60), state_ready=False))
    codes = Counter(each.explain()[0].code for each in made)
    assert Circular.stator.explain_counts() == codes == {"in_line": 2, "not_due": 3, "due": 1}


def test_pages_of_the_admin_tell_when_an_object_is_attempted_and_when_it_times_out():
    found = [situation(put(Circular, **given)) for given in ({"send_after": ago(-299.5)}, {"send_after": ago(1)}, {})]
    assert [one.why for one in found] == ["not due yet", "ready", "ready"]
    kept = put(Circular, state="reminding", send_after=ago(0), patience=timedelta(seconds=99.5), state_ready=False)
    assert re.fullmatch(r"in 1 m \d+ s", situation(kept).next)
    told = r"times out to down at .* \(in 4 m \d+ s\), from alert_after"
    assert re.fullmatch(told, timeout(put(Watch, alert_after=ago(-299))))
    assert timeout(put(Watch)) == "does not time out to down, since alert_after is null"
    assert timeout(put(Watch, state="down", alert_after=ago(0))).endswith("from alert_after + kept_for + 1 h")


def test_object_is_overdue_by_its_date_and_not_by_when_it_came_into_its_state():
    made = [put(Circular, send_after=at, state_changed=ago(7200), state_ready=False) for at in (ago(-60), ago(100))]
    overdue = [each.pk for part in parts_of("overdue", OperatorQuerySet(Circular)) for each in part]
    assert overdue == [made[1].pk]
