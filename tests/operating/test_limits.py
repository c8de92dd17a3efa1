"""A backlog by a limit: the limit, when the last is done, and a remedy that raises the limit and ends it."""

import json
import re
import shlex

import pytest
from django.core.management import CommandError

import tasks
from stator import claims
from stator.testing import drain
from tasks.actions.registry import registry
from tasks.models import ActionSlot, Queue, Schedule, Task
from tests.operating.tools import overview, shell
from tests.stator.making import ago, raw

pytestmark = pytest.mark.django_db


@pytest.fixture
def deploy(monkeypatch):
    """A function that has the code declare the action ``crawl`` with these options, as a deployment does."""

    def declare(**options):
        monkeypatch.delitem(registry, "crawl", raising=False)
        tasks.action("crawl", **options)(crawl)

    monkeypatch.setitem(registry, "crawl", {})
    return declare


def crawl(host="a"):
    """Do nothing."""


def publish(count, host="a"):
    queue, _ = Queue.objects.get_or_create(name="web")
    return [queue.publish("crawl", {"host": host}).task for _ in range(count)]


def troubles(code):
    told = json.loads(shell("stator", "status", "tasks.Task", "tasks.Schedule", "--json"))["troubles"]
    return [one for one in told if one["code"] == code]


def before_time(sentence):
    """Return what does not change when a minute passes between two renderings."""
    return sentence.partition(": done ")[0]


def test_rate_that_takes_hours_is_told_and_ended_by_its_remedy(deploy):
    deploy(rate="1/1000s")
    made = publish(12)
    drain(Task)
    [told] = troubles("throttled")
    assert (told["level"], told["count"]) == ("warning", 11)
    assert re.fullmatch(
        r"11 tasks wait for the rate of an action at 3\.6/h: done (on \S+ )?at \d\d:\d\d", told["sentence"]
    )
    assert told["detail"] == "crawl in queue web has rate 1/1000s"
    assert told["remedy"] == (
        f"raise rate of action crawl in {__name__} and deploy that, then run manage.py tasks retry crawl --queue web"
    )
    assert before_time(told["sentence"]) in (page := overview())
    assert f"R{told['remedy'][1:]}" in page
    reason = Task.objects.get(pk=made[-1].pk).explain()[0]
    assert reason.code == "throttled"
    assert re.fullmatch(
        r"Waits for a limit of action crawl, rate 1/1000s: it asks again in [\dhm ]+; 11 tasks wait at 3\.6/h: "
        r"done (on \S+ )?at \d\d:\d\d\.",
        reason.sentence,
    )
    assert "a retry alone does not help" in reason.remedy
    assert "not_due" not in [one.code for one in made[-1].explain()]
    # Before the limit is raised the command says that it would not help.
    arguments = shlex.split(told["command"])[1:]
    with pytest.raises(CommandError, match="action crawl has rate 1/1000s in this code"):
        shell(*arguments)
    deploy(rate="100/s")
    assert "11 tasks of crawl are due now" in shell(*arguments)
    drain(Task)
    assert Task.objects.filter(state="completed").count() == 12
    assert not troubles("throttled")


def test_rate_that_takes_a_minute_is_no_problem(deploy):
    deploy(rate="1/s")
    publish(20)
    drain(Task)
    assert not troubles("throttled")


def test_key_with_most_tasks_is_the_last(deploy):
    deploy(rate="1/600s", key="host")
    publish(11, "busy.example.org")
    publish(2, "other")
    drain(Task)
    [told] = troubles("throttled")
    assert told["detail"] == "crawl in queue web has rate 1/600s of 'busy.example.org'"
    assert told["count"] == 11
    assert told["numbers"]["done_in"] == pytest.approx(6000)


def test_concurrency_is_told_with_the_pace_of_what_ended(deploy):
    deploy(concurrency=1)
    [holder, *others] = publish(13)
    # For longer than this test takes on a crowded machine.
    [held] = claims.claim(Task, lease=3600.0)
    ActionSlot.take("default", ":crawl:", 1, held.pk, held.token)
    drain(Task)
    raw(Task).filter(state="pending", state_claim=None).update(state_changed=ago(7200))
    [told] = troubles("throttled")
    assert told["sentence"] == "12 tasks wait for the concurrency of an action"
    ended = [one.pk for one in others[:10]]
    raw(Task).filter(pk__in=ended).update(state="completed", state_ready=False, state_changed=ago(10))
    assert not troubles("throttled")
    raw(Task).filter(pk=others[-1].pk).update(state_next_attempt=ago(-60))
    assert "2 tasks wait at 2/m: done" in Task.objects.get(pk=others[-1].pk).explain()[0].sentence


def test_tasks_that_wait_for_something_else_are_left_alone(deploy):
    deploy(rate="1/1000s")
    publish(3)
    queue = Queue.objects.get()
    later = queue.publish("crawl", {"host": "a"}, invisible_for=9000).task
    drain(Task)
    deploy(rate="100/s")
    assert "2 tasks of crawl are due now" in shell("tasks", "retry", "crawl")
    later.refresh_from_db()
    assert later.status == "invisible"


def ticking(count):
    queue = Queue.objects.create(name="ticks", actions_elsewhere=True)
    given = {"queue": queue, "action": "act", "period": 86400.0, "rate_limit": 0.001, "rate_key": "api"}
    made = [Schedule.objects.create(name="tick", entity=str(number), **given) for number in range(count)]
    drain(Schedule)
    raw(Schedule).update(asked=True, state_next_attempt=ago(1))
    drain(Schedule)
    return queue, made


def test_rate_of_schedules_that_takes_hours_is_told_and_ended_by_its_remedy():
    queue, _ = ticking(11)
    assert queue.tasks.count() == 1
    [told] = troubles("throttled")
    assert (told["level"], told["count"]) == ("warning", 10)
    assert re.fullmatch(
        r"10 schedules wait for the rate of their ticks at 3\.6/h: done (on \S+ )?at \d\d:\d\d", told["sentence"]
    )
    assert told["detail"].startswith("rate_key 'api' has rate_limit 0.001 a second: tick ")
    assert before_time(told["sentence"]) in overview()
    waiting = Schedule.objects.exclude(held_until=None).first()
    reason = waiting.explain()[0]
    assert reason.code == "throttled"
    assert "rate_limit 0.001 a second" in reason.sentence
    assert "a retry does not help" in reason.remedy
    shell(*shlex.split(told["command"].replace("--rate-limit N", "--rate-limit 1000"))[1:])
    assert not troubles("throttled")
    for _ in range(3):
        raw(Schedule).update(state_next_attempt=ago(1))
        drain(Schedule)
    assert queue.tasks.count() == 11
