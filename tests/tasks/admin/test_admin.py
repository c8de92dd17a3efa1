"""Queues, tasks and claims in the admin: pages, acts, who may do them, and what never becomes markup."""

import re
from datetime import timedelta

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import escape

from stator.admin import conditions, kept
from stator.models import History, Report, move_rows
from tasks import querysets
from tasks.models import Queue, Run, Task
from tasks.queue import figures, moving
from tasks.queue.consumers import Consumer
from tests.stator.making import ago, change, row
from tests.tasks.making import STATUSES, claim_one, fresh, make_queue, make_task, pass_time
from tests.testapp import tasks as examples

pytestmark = pytest.mark.django_db

TASKS, QUEUES, RUNS = (reverse(f"admin:tasks_{name}_changelist") for name in ("task", "queue", "run"))
ADD_TASK, ADD_QUEUE = reverse("admin:tasks_task_add"), reverse("admin:tasks_queue_add")
CONFIRMED = {"tasks_confirmed": "1"}
EVIL = "<script>alert(1)</script>"


def page(instance):
    return reverse(f"admin:tasks_{instance._meta.model_name}_change", args=[instance.pk])


def act(client, name, *rows, confirmed=True, follow=True, url=None, **data):
    """Ask for an act on rows, and confirm it."""
    posted = {"action": name, "index": "0", "_selected_action": [each.pk for each in rows], **data}
    url = url or (QUEUES if name.startswith("queue") else TASKS)
    return client.post(url, posted | (CONFIRMED if confirmed else {}), follow=follow)


def publish(client, queue, /, **data):
    return client.post(ADD_TASK, {"queue": queue.pk, "action": "resize"} | data | CONFIRMED, follow=True)


def text_of(response):
    assert response.status_code == 200
    return response.content.decode()


def statements(client, url, **data):
    """How many statements a page takes once what is cached per process is."""
    client.get(url, data)
    with CaptureQueriesContext(connection) as queries:
        assert client.get(url, data).status_code == 200
    return [query["sql"] for query in queries]


def make_all(queue):
    """One task of each status, the running one last."""
    names = ("errored", "completed", "canceled", "invisible", "running", "pending")
    return {name: make_task(queue, name, key=f"key-of-{name}") for name in names}


def make_dead(queue, count, **options):
    queue.publish_many([{"action": "resize", "key": f"dead-{number}", **options} for number in range(count)])
    move_rows(queue.tasks.filter(state="pending", whole=None), "errored", reason="for a test")


# The list of tasks


def test_list_shows_each_status_who_holds_it_and_how_often_it_was_tried(admin_client):
    tasks = make_all(make_queue())
    text = text_of(admin_client.get(TASKS))
    for status in STATUSES:
        assert f'<span class="task-status task-{status}">{status}</span>' in text
        assert f"key-of-{status}" in text
    assert re.search(r"maker, (59 s|1 m) left", text)
    change(tasks["running"], state_locked_until=ago(100))
    assert re.search(r"maker, lease ran out 1 m 4\d s ago", text_of(admin_client.get(TASKS)))


def test_list_says_which_worker_process_has_a_task(admin_client):
    task = make_task(make_queue())
    change(task, state_claim="0123456789ab00000000000000000001", state_locked_until=ago(-50), state_attempted=ago(1))
    assert "worker 0123456789ab, " in text_of(admin_client.get(TASKS))


@pytest.mark.parametrize("status", STATUSES)
def test_list_is_filtered_by_status(admin_client, status):
    make_all(make_queue())
    text = text_of(admin_client.get(TASKS, {"status": status}))
    assert set(re.findall(r"key-of-(\w+)", text)) == {status}


def test_status_of_a_shared_task_is_that_of_its_parts(admin_client):
    queue = make_queue()
    whole = queue.publish("resize", worker_count=2).task
    badge = '<span class="task-status task-{0}">{0}</span>'.format
    assert text_of(admin_client.get(TASKS)).count(badge("pending")) == 3
    claim_one(queue)
    text = text_of(admin_client.get(TASKS))
    assert (text.count(badge("running")), text.count(badge("pending"))) == (2, 1)
    text = text_of(admin_client.get(page(whole)))
    assert "One part for each worker" in text
    assert f"It is a part of task {whole.pk}." in text_of(admin_client.get(page(whole.parts.first())))
    assert text.count(badge("running")) == 1
    assert '<span class="stator-badge stator-external">running</span>' in text


def test_list_is_filtered_by_queue_and_searched_by_action_key_and_number(admin_client):
    one, other = make_queue("one"), make_queue("other")
    wanted = one.publish("resize.image", key="wanted").task
    other.publish("crop", key="unwanted")
    for query in ({"queue__id__exact": one.pk}, {"q": "size.im"}, {"q": "wanted"}, {"q": str(wanted.pk)}):
        assert set(re.findall("(?:un)?wanted(?=<)", text_of(admin_client.get(TASKS, query)))) == {"wanted"}, query
    assert "unwanted" not in text_of(admin_client.get(TASKS, {"q": "nothing of that"}))


def test_search_finds_keys_and_numbers_however_old_and_actions_among_the_newest(admin_client, monkeypatch):
    queue, other = make_queue(), make_queue("mail")
    tasks = [queue.publish("resize", key=f"key {number}").task for number in range(4)]
    tasks.append(other.publish("resize", key="key 0").task)
    monkeypatch.setattr(kept, "SEARCHED", 1)
    for words, found in (
        ("key 0", [tasks[0], tasks[4]]),
        (tasks[1].pk, [tasks[1]]),
        ("RESI", tasks[3:]),
        ("9" * 18, []),
        ("\N{SUPERSCRIPT TWO}", []),
    ):
        shown = admin_client.get(TASKS, {"q": words}).context["cl"].queryset
        assert set(shown) == set(found), words


@pytest.mark.parametrize("few", [0, 2000])
def test_status_filter_has_the_tasks_of_that_status(admin_client, monkeypatch, few):
    monkeypatch.setattr(conditions, "FEW", few)
    queue = make_queue()
    for status in ("running", "completed", "errored", "canceled", "invisible", "pending"):
        make_task(queue, status)
    due = queue.publish("resize", invisible_for=60).task
    change(due, state_next_attempt=ago(1))
    queue.publish("resize", worker_ids=["a", "b"], worker_count=2)
    for status in STATUSES:
        shown = admin_client.get(TASKS, {"status": status}).context["cl"].queryset
        meant = [task for task in Task.objects.all() if task.status == status]
        assert meant
        assert set(shown) == set(meant), status


def test_list_takes_the_same_statements_however_many_tasks_there_are(admin_client, monkeypatch):
    queue = make_queue(same_worker_again=True)
    make_all(queue)
    queue.publish("resize", worker_count=2)
    few = statements(admin_client, TASKS)
    for number in range(10):
        queue.publish("resize", worker_count=2, priority=0)
        claim_one(queue, f"bot-{number}").resolve()
        make_task(queue, "canceled")
    many = statements(admin_client, TASKS)
    assert len(many) == len(few) <= 14
    counts = [sql for sql in many if "COUNT(*)" in sql.split("FROM")[0] and "tasks_task" in sql]
    assert counts
    assert all("LIMIT 10001" in sql for sql in counts)


# The page of a task


def test_page_of_a_task_says_why_it_is_not_moving(admin_client):
    queue = make_queue()
    task = make_task(queue)
    queue.pause(claim=True, author="ann", reason="deploying")
    text = text_of(admin_client.get(page(task)))
    assert "Nothing of queue encode is claimed: paused by ann (deploying)." in text
    assert text.index("paused by ann") < text.index("What happened")


def test_page_of_a_task_says_that_no_worker_is_eligible(admin_client):
    queue = make_queue()
    task = make_task(queue)
    claim_one(queue).release("disk is full")
    assert "No eligible worker: all 1 that ask for work (bot-1)" in text_of(admin_client.get(page(task)))


def test_page_of_a_dead_letter_says_what_to_do_and_what_went_wrong(admin_client):
    task = make_task(make_queue(), "errored")
    text = text_of(admin_client.get(page(task)))
    assert "It ended without success and is kept for people. The last error: tasks.Failed: no such image" in text
    assert "once the cause is mended, requeue it." in text
    assert "move it to another state" not in text


def test_page_of_a_task_tells_what_happened_to_it_the_latest_first(admin_client, admin_user):
    queue = make_queue(same_worker_again=True)
    task = make_task(queue)
    try:
        raise ValueError("no such image")
    except ValueError as error:
        claim_one(queue).fail(error)
    pass_time(100)
    claim_one(queue, "bot-2").resolve({"url": "there"})
    move_rows(queue.tasks.all(), "canceled", actor="ann", reason="a mistake")
    text = text_of(admin_client.get(page(task)))
    # The end of a claim and the move that came of it may be of one moment, so whose they are comes before or after.
    order = ["canceled", "by ann", "succeeded", "failed", "ValueError: no such image", "published"]
    found = [text.index(word, text.index("What happened")) for word in order]
    assert found == sorted(found)
    assert "by worker bot-2" in text
    assert "a mistake" in text
    header = r"<details[^>]*><summary>Traceback</summary><pre>Traceback \(most recent call last\):"
    assert re.search(rf"{header}\s+File .*in test_page_of", text)


def test_page_of_a_task_says_each_thing_once(admin_client):
    queue = make_queue(max_attempts=1)
    task = make_task(queue)
    claim_one(queue).fail("no such image")
    text = text_of(admin_client.get(page(task)))
    assert text.count('class="stator-reasons"') == text.count('class="stator-timeline"') == 1
    assert text.count('data-stator-live="') == text.count("What happened") == text.count("Where it is") == 1
    assert text.count("by worker bot-1") == 3, "the claim, its end, and the move that came of it"
    assert text.count('value="task_requeue"') == 1


def test_live_part_of_a_task_shows_what_came_of_it(admin_client):
    queue = make_queue()
    task = make_task(queue)
    live = f"{TASKS}{task.pk}/stator/"
    claim = claim_one(queue)
    text = text_of(admin_client.get(live))
    assert re.search(r"stator-badge stator-leased\">running<", text)
    assert "bot-1, " in text
    assert re.findall(r'data-stator-code="(\w+)"', text) == ["held"]
    claim.resolve({"url": "there"})
    text = text_of(admin_client.get(live))
    assert re.search(r"stator-badge stator-terminal\">completed<", text)
    assert escape('"url": "there"') in text


def test_tracebacks_are_for_those_who_may_see_them(client):
    queue = make_queue()
    task = make_task(queue)
    try:
        raise ValueError("no such image")
    except ValueError as error:
        claim_one(queue).fail(error)
    client.force_login(person("view_task", "view_run"))
    for url in (page(task), RUNS, page(Run.objects.get())):
        text = text_of(client.get(url))
        assert "ValueError: no such image" in text
        assert "in test_tracebacks" not in text
    client.force_login(person("view_task", "view_run", "view_report"))
    assert "in test_tracebacks" in text_of(client.get(page(task)))


def test_page_of_a_task_shows_results_and_claims_that_were_lost(admin_client):
    queue = make_queue()
    task = make_task(queue)
    claim_one(queue)
    pass_time(100)
    claim_one(queue, "bot-2").resolve({"url": "there"})
    text = text_of(admin_client.get(page(task)))
    assert escape('"url": "there"') in text
    assert re.search(r'<span class="stator-what">lost</span> <span class="stator-who">by worker bot-1<', text)


def test_page_of_a_task_takes_few_statements(admin_client):
    queue = make_queue(same_worker_again=True, max_attempts=100)
    task = make_task(queue)
    claim_one(queue).fail("once")
    change(task, state_ready=True)
    few = statements(admin_client, page(task))
    for _ in range(5):
        claim_one(queue).fail("again")
        change(task, state_ready=True)
    assert len(statements(admin_client, page(task))) == len(few) <= 40


def test_long_data_is_cut(admin_client):
    task = make_queue().publish("resize", {"text": "a" * 100_000}).task
    text = text_of(admin_client.get(page(task)))
    assert "... (100," in text
    assert len(text) < 90_000


def test_task_is_not_edited(admin_client):
    task = make_task(make_queue())
    before = Task.objects.values().get()
    assert admin_client.post(page(task), {"action": "other", "queue": task.queue_id}).status_code == 403
    assert Task.objects.values().get() == before


# Publishing


def test_task_is_published_and_its_outcome_told(admin_client):
    queue = make_queue()
    options = {
        "data": '{"image": 7}', "key": "k", "metadata": '{"title": "abc"}', "priority": "3", "invisible_for": "60",
        "max_attempts": "2", "timeout": "30", "lease": "20", "retention": "5", "worker_ids": "bot-1\n\n bot-2 ",
        "worker_count": "1",
    }  # fmt: skip
    assert "(inserted)." in text_of(publish(admin_client, queue, **options))
    task = queue.tasks.get()
    assert (task.data, task.key, task.metadata, task.priority) == ({"image": 7}, "k", {"title": "abc"}, 3)
    assert (task.status, task.max_attempts, task.timeout, task.lease, task.retention) == ("invisible", 2, 30, 20, 5)
    assert task.worker_ids == ["bot-1", "bot-2"]
    assert "(matched)." in text_of(publish(admin_client, queue, key="k"))
    text = text_of(publish(admin_client, queue, key="k", update="on", data="8"))
    assert "what is written here was put into it (matched)." in text
    assert queue.tasks.get().data == 8
    told = [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]
    assert told == ["Published: inserted.", "Published: matched.", "Published: matched."]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"key": "a\u202eb"}, "must be a text of 1 to 200 printable characters"),
        ({"metadata": '{"7": 1}'}, "metadata has the name"),
        ({"metadata": "[1]"}, "must be a dictionary"),
        ({"max_attempts": "0"}, "max_attempts=0 must be a whole number from 1"),
        ({"worker_count": "2", "worker_ids": "bot-1"}, "worker_ids names fewer"),
        ({"worker_ids": EVIL}, escape("worker_ids: worker=")),
        ({"priority": "9" * 30}, "must be a whole number from"),
        ({"lease": "1e9"}, "must be a number from 0.05"),
        ({"lease": "nan"}, "Enter a number."),
        ({"data": "{"}, "Enter a valid JSON."),
        ({"data": "[" * 100_000}, "Enter a valid JSON."),
        ({"data": "9" * 5000}, "Enter a valid JSON."),
        ({"data": "[" * 60 + "]" * 60}, "nested deeper than 50 levels"),
        ({"data": '"\\ud800"'}, "half of a surrogate pair"),
        ({"data": '["\\u0000"]'}, "NUL character"),
        ({"data": '"\\u0000"'}, "Null characters are not allowed"),
        ({"data": "NaN"}, "cannot be kept as JSON"),
        ({"action": ""}, "This field is required."),
        ({"queue": "17"}, "not one of the available choices"),
    ],
)
def test_what_cannot_be_published_is_an_error_of_the_form(admin_client, given, told):
    text = text_of(publish(admin_client, make_queue(), **given))
    assert told in re.sub(r"\s+", " ", text)
    assert not Task.objects.exists()


def test_refusals_of_the_queue_are_errors_of_the_form(admin_client):
    queue = make_queue(actions_elsewhere=False)
    told = "no action &#x27;unheard&#x27; is registered for queue encode"
    assert told in text_of(publish(admin_client, queue, action="unheard"))
    exclusive = make_queue("exclusive", exclusive_key="title")
    assert "the metadata must have a value of &#x27;title&#x27;" in text_of(publish(admin_client, exclusive))
    queue.pause(publish=True, author="ann", reason="full")
    assert "takes no tasks at present: paused by ann (full)" in text_of(publish(admin_client, queue))
    assert not Task.objects.exists()
    assert not LogEntry.objects.exists()


# Acts on tasks


def test_cancel_asks_first_and_leaves_alone_what_runs(admin_client):
    tasks = make_all(make_queue())
    asked = text_of(act(admin_client, "task_cancel", *tasks.values(), confirmed=False))
    assert "2 tasks are waiting and will be canceled." in asked
    assert "1 task is held by workers and left alone, unless you say so below." in asked
    assert fresh(tasks["pending"]).status == "pending"
    text = text_of(act(admin_client, "task_cancel", *tasks.values(), reason="by mistake"))
    assert "2 tasks canceled. Those that run were left alone." in text
    expected = dict(zip(STATUSES, STATUSES, strict=True)) | {"pending": "canceled", "invisible": "canceled"}
    assert {name: fresh(task).status for name, task in tasks.items()} == expected
    moved = History.objects.get(object_pk=str(tasks["pending"].pk), to="canceled")
    assert (moved.actor, moved.reason) == ("admin", "by mistake")
    logged = {entry.object_id for entry in LogEntry.objects.all()}
    assert logged == {str(tasks["pending"].pk), str(tasks["invisible"].pk)}


def test_running_task_is_canceled_where_that_is_said(admin_client):
    queue = make_queue()
    task = make_task(queue)
    claim = claim_one(queue)
    text = text_of(act(admin_client, "task_cancel", task, running="on", reason="runs wild", stator_object="1"))
    assert "1 task canceled." in text
    assert fresh(task).status == "canceled"
    assert re.search(r"stator-badge stator-terminal\">canceled<", text), "the page of the task comes again"
    run = Run.objects.get(token=claim.token)
    assert (run.outcome, run.reason) == ("canceled", "runs wild")


def test_many_are_canceled_in_batches(admin_client, monkeypatch):
    monkeypatch.setattr(moving, "BATCH", 7)
    queue = make_queue()
    queue.publish_many([{"action": "resize", "worker_count": 2} for _ in range(20)])
    first = queue.tasks.first()
    text = text_of(act(admin_client, "task_cancel", first, select_across="1", reason="all"))
    assert re.search(r"\d+ tasks canceled", text)
    assert set(queue.tasks.values_list("state", flat=True)) == {"canceled"}


def test_dead_letters_are_requeued_at_once(admin_client):
    tasks = make_all(make_queue())
    asked = text_of(act(admin_client, "task_requeue", *tasks.values(), confirmed=False))
    assert "1 dead letter will wait again" in asked
    assert "1 task requeued." in text_of(act(admin_client, "task_requeue", *tasks.values(), reason="mended"))
    task = fresh(tasks["errored"])
    assert (task.status, task.state_ready, task.attempts) == ("pending", True, 0)
    assert task.notice_due is not None
    moved = History.objects.filter(object_pk=str(task.pk)).latest("pk")
    assert (moved.source, moved.to, moved.actor, moved.reason) == ("errored", "pending", "admin", "mended")
    assert [entry.object_id for entry in LogEntry.objects.all()] == [str(task.pk)]
    assert "Only tasks that are errored are requeued." in text_of(act(admin_client, "task_requeue", task))


def test_a_thousand_are_requeued_at_a_rate(admin_client):
    queue = make_queue()
    make_dead(queue, 1000)
    first = queue.tasks.first()
    with CaptureQueriesContext(connection) as queries:
        response = act(
            admin_client, "task_requeue", first, select_across="1", per_minute="6", reason="slowly", follow=False
        )
    assert len(queries) < 80
    text = text_of(admin_client.get(response["Location"]))
    assert "1,000 tasks requeued at 6 per minute. The last is due at " in text
    dues = list(queue.tasks.in_order().values_list("state_next_attempt", flat=True))
    assert {late - early for early, late in zip(dues, dues[1:], strict=False)} == {timedelta(seconds=10)}
    assert not queue.tasks.exclude(state="pending", state_ready=False).exists()
    assert len(queue.claim(worker="bot-1", limit=100)) == 1
    pass_time(100)
    assert 10 <= len(queue.claim(worker="bot-1", limit=100)) <= 12
    assert History.objects.filter(actor="admin", reason="slowly", to="pending").count() == 1000


def test_most_urgent_comes_first_when_requeued_at_a_rate():
    queue = make_queue()
    for priority in (5, 1, 3):
        queue.publish("resize", key=str(priority), priority=priority)
    move_rows(queue.tasks.all(), "errored")
    done = queue.tasks.requeue("mended", actor="ann", per_minute=6)
    due = {task.priority: task.state_next_attempt for task in queue.tasks.all()}
    assert (due[3] - due[1], due[5] - due[3]) == (timedelta(seconds=10), timedelta(seconds=10))
    assert (done.count, done.last_due) == (3, due[5])


def test_shared_dead_letter_is_requeued_with_its_parts_and_a_part_is_not_alone(django_capture_on_commit_callbacks):
    queue = make_queue()
    whole = queue.publish("resize", worker_count=2).task
    part = whole.parts.first()
    with django_capture_on_commit_callbacks(execute=True):
        move_rows(queue.tasks.filter(pk=part.pk), "errored")
    assert fresh(whole).status == "errored"
    assert queue.tasks.filter(pk=part.pk).requeue().count == 0
    done = queue.tasks.requeue(per_minute=60)
    assert done.count == 1
    assert fresh(whole).state == "shared"
    assert {str(each.state) for each in whole.parts.all()} == {"pending"}
    assert {each.state_next_attempt for each in whole.parts.all()} == {done.last_due}


def test_what_is_left_of_too_many_is_told(admin_client, monkeypatch):
    monkeypatch.setattr(querysets, "MOST", 3)
    make_dead(make_queue(), 5)
    text = text_of(act(admin_client, "task_requeue", Task.objects.first(), select_across="1"))
    assert "3 tasks requeued. There are more: do it again once these are done." in text


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "1e400", "often"])
def test_rate_that_is_none_is_an_error_of_the_form(admin_client, rate):
    make_dead(make_queue(), 1)
    text = text_of(act(admin_client, "task_requeue", Task.objects.get(), per_minute=rate))
    assert "Nothing was done yet" in text
    assert Task.objects.get().state == "errored"


def test_acts_are_offered_where_they_do_something(admin_client):
    tasks = make_all(make_queue())
    for status, task in tasks.items():
        offered = set(re.findall(r'name="action" value="(\w+)"', text_of(admin_client.get(page(task)))))
        assert ("task_cancel" in offered) is (status in ("pending", "invisible", "running"))
        assert ("task_requeue" in offered) is (status == "errored")
        assert ("stator_unlock" in offered) is (status == "running")
        assert ("stator_retry" in offered) is (status in ("pending", "invisible"))


def test_retry_and_unlock_come_from_the_framework(admin_client):
    queue = make_queue()
    late, held = make_task(queue, "invisible"), make_task(queue, "running")
    assert "1 task will be attempted now" in text_of(act(admin_client, "stator_retry", late))
    assert "1 task unlocked" in text_of(act(admin_client, "stator_unlock", held))
    assert (fresh(late).status, fresh(held).status) == ("pending", "pending")


# Queues


def test_list_of_queues_shows_how_deep_they_are(admin_client):
    make_all(make_queue("one"))
    queue = make_queue("other")
    queue.pause(claim=True, author="ann", reason="deploying", seconds=600)
    change(make_task(queue), state_changed=ago(125))
    make_dead(make_queue("third"), 2)
    text = text_of(admin_client.get(QUEUES))
    rows = dict(re.findall(r'<th class="field-name">.*?>(\w+)</a>(.*?)</tr>', text, re.DOTALL))
    shown = {
        name: re.findall(r'field-(?:waiting|oldest|later|running|dead)[^"]*">(?:<(?:a|span)[^>]*>)*([^<]*)', row)
        for name, row in rows.items()
    }
    assert shown["one"][0] == "1"
    assert shown["one"][2:] == ["1", "1", "1"]
    assert shown["other"] == ["1", "2 m 5 s", "0", "0", "0"]
    assert shown["third"] == ["0", "\N{EM DASH}", "0", "2", "0"]
    assert "claiming paused by ann until " in rows["other"]
    assert "(deploying)" in rows["other"]


def test_depth_is_counted_no_further_than_it_must(admin_client, monkeypatch):
    monkeypatch.setattr(figures, "MOST", 3)
    deep, other = make_queue("deep"), make_queue("other")
    deep.publish_many([{"action": "resize"} for _ in range(9)])
    deep.publish_many([{"action": "resize", "invisible_for": 60} for _ in range(9)])
    other.publish_many([{"action": "resize"} for _ in range(3)])
    found = figures.figures_of([deep, other], "default")
    assert (found[deep.pk].waiting, found[other.pk].waiting) == ("3+", "3")
    assert (found[deep.pk].later, found[deep.pk].dead) == ("3+", "0")


def test_list_of_queues_takes_the_same_statements_however_many_there_are(admin_client):
    make_all(make_queue("one"))
    few = statements(admin_client, QUEUES)
    for number in range(5):
        make_all(make_queue(f"queue-{number}"))
    many = statements(admin_client, QUEUES)
    assert len(many) == len(few) <= 12
    assert all("LIMIT" in sql for sql in many if 'FROM "tasks_task"' in sql)


def test_figures_lead_to_the_tasks_that_they_count(admin_client):
    queue = make_queue()
    make_all(queue)
    make_all(make_queue("other"))
    link = re.search(
        rf'href="([^"]*queue__id__exact={queue.pk}&amp;status=errored)"', text_of(admin_client.get(QUEUES))
    )
    text = text_of(admin_client.get(link[1].replace("&amp;", "&")))
    assert set(re.findall(r"key-of-(\w+)", text)) == {"errored"}
    assert "1 task" in text


QUEUE = {"name": "new", "kind": "simple", "exclusive_key": "", "worker_retries": "0", "actions_elsewhere": "on"}


def test_queue_is_made_and_configured(admin_client):
    assert admin_client.post(ADD_QUEUE, QUEUE | {"kind": "exclusive", "exclusive_key": "title"}).status_code == 302
    queue = Queue.objects.get()
    queue.pause(claim=True, author="ann")
    posted = QUEUE | {"lease": "30", "max_attempts": "3", "kind": "simple", "exclusive_key": "", "name": "renamed"}
    assert admin_client.post(page(queue), posted).status_code == 302
    queue.refresh_from_db()
    assert (queue.lease, queue.max_attempts, queue.claim_paused) == (30.0, 3, True)
    assert (queue.name, queue.kind, queue.exclusive_key) == ("new", "exclusive", "title")


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"kind": "exclusive"}, "exclusive_key"),
        ({"exclusive_key": "title"}, "exclusive_key"),
        ({"lease": "0"}, "lease"),
        ({"lease": "inf"}, "lease"),
        ({"timeout": "-1"}, "timeout"),
        ({"max_attempts": "0"}, "max_attempts"),
        ({"max_attempts": str(2**40)}, "max_attempts"),
        ({"worker_retries": "40000"}, "worker_retries"),
        ({"name": "there"}, "name"),
        ({"name": "a b"}, "name"),
        ({"name": "a\x1bb"}, "name"),
        ({"name": ""}, "name"),
        ({"kind": "odd"}, "kind"),
        ({"databases": '["\\ud800"]'}, "databases"),
        ({"databases": "9" * 5000}, "databases"),
        ({"databases": "[[1]]"}, "databases"),
        ({"databases": '{"a": 1}'}, "databases"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_settings_that_cannot_work_are_errors_of_the_form(admin_client, given, field):
    make_queue("there")
    response = admin_client.post(ADD_QUEUE, QUEUE | given)
    assert list(response.context["adminform"].form.errors) == [field]
    assert Queue.objects.count() == 1


def test_queue_is_paused_with_reason_and_end_and_resumed(admin_client):
    queue = make_queue()
    asked = text_of(act(admin_client, "queue_pause", queue, confirmed=False))
    assert "Nothing is handed out to workers" in asked
    text = text_of(act(admin_client, "queue_pause", queue, claim="on", reason="deploying", minutes="10"))
    assert "1 queue paused. Claiming stands still." in text
    queue.refresh_from_db()
    assert (queue.publish_paused, queue.claiming_paused) == (False, True)
    assert (queue.pause_author, queue.pause_reason) == ("admin", "deploying")
    assert timedelta(seconds=590) < queue.pause_until - ago(0) < timedelta(seconds=601)
    again = text_of(act(admin_client, "queue_pause", queue, confirmed=False))
    assert "claiming paused by admin until" in again
    assert "the new pause takes its place" in again
    assert "1 queue resumed." in text_of(act(admin_client, "queue_resume", queue, stator_object="1"))
    queue.refresh_from_db()
    assert not queue.claim_paused
    assert "None of them is paused." in text_of(act(admin_client, "queue_resume", queue))
    told = [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]
    assert told[0] == "Paused claiming for 10 m. deploying"
    assert told[1].startswith("Resumed. It was claiming paused by admin until")
    assert len(told) == 2


@pytest.mark.parametrize("given", [{}, {"claim": "on", "minutes": "0"}, {"claim": "on", "minutes": "1e12"}])
def test_pause_of_nothing_or_for_no_time_is_an_error_of_the_form(admin_client, given):
    queue = make_queue()
    assert "Nothing was done yet" in text_of(act(admin_client, "queue_pause", queue, **given))
    assert not row(queue).claim_paused


def test_page_of_a_queue_shows_its_workers_and_its_figures(admin_client):
    queue = make_queue()
    make_task(queue, "running")
    text = text_of(admin_client.get(page(queue)))
    assert "<td>maker</td>" in text
    assert f"{TASKS}?queue__id__exact={queue.pk}&amp;status=running" in text
    Queue.objects.get().claimants.update(seen=ago(1000))
    assert "None has asked within the last minute." in text_of(admin_client.get(page(queue)))


def test_queue_is_deleted_only_when_it_is_empty(admin_client):
    queue, empty = make_queue(), make_queue("empty")
    make_task(queue)
    assert admin_client.post(f"{QUEUES}{queue.pk}/delete/", {"post": "yes"}).status_code == 403
    assert admin_client.post(f"{QUEUES}{empty.pk}/delete/", {"post": "yes"}).status_code == 302
    act(admin_client, "delete_selected", queue, url=QUEUES, post="yes")
    assert list(Queue.objects.all()) == [queue]


# Claims


def test_claims_are_listed_and_filtered(admin_client):
    queue = make_queue(same_worker_again=True)
    for number, end in enumerate(("resolve", "fail", "release", "cancel", "")):
        make_task(queue, priority=number)
        claim = claim_one(queue, f"worker-of-{end or 'held'}")
        if end:
            getattr(claim, end)(*(["no such image"] if end == "fail" else []))
        if end:
            change(claim.task, state_ready=False)
    make_task(queue, priority=9)
    lost = claim_one(queue, "worker-of-lost")
    change(lost.task, state_claim=None, state_locked_until=None)
    ends = {"succeeded": "resolve", "failed": "fail", "released": "release", "canceled": "cancel"}
    for outcome, worker in (ends | {"held": "held", "lost": "lost"}).items():
        text = text_of(admin_client.get(RUNS, {"outcome": outcome}))
        assert set(re.findall(r"worker-of-(\w+)", text)) == {worker}
    assert "no such image" in text_of(admin_client.get(RUNS, {"q": "worker-of-fail"}))
    few = statements(admin_client, RUNS)
    for number in range(10, 20):
        make_task(queue, priority=number)
        claim_one(queue).resolve()
    assert len(statements(admin_client, RUNS)) == len(few)


def test_claims_are_only_read(admin_client):
    make_task(make_queue(), "running")
    run = Run.objects.get()
    assert admin_client.get(page(run)).status_code == 200
    for url, data in ((page(run), {"worker": "other"}), (f"{RUNS}{run.pk}/delete/", {"post": "yes"})):
        assert admin_client.post(url, data).status_code == 403
    assert Run.objects.get().worker == "maker"


# Who may do what


def person(*codenames):
    user = User.objects.create_user("+".join(codenames) or "staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    assert user.user_permissions.count() == len(codenames)
    return user


PEOPLE = {
    "anonymous": (None, 302, 302, 302, 302),
    "staff": ((), 403, 403, 403, 403),
    "view": (("view_task", "view_queue", "view_run"), 200, 403, 403, 403),
    "change": (("change_task", "change_queue", "view_run"), 200, 200, 403, 403),
    "add": (("add_task", "view_task", "view_queue", "view_run"), 200, 403, 403, 200),
    "force": (("force_task", "view_task", "view_queue", "view_run"), 200, 403, 200, 403),
    "superuser": ("super", 200, 200, 200, 200),
}


def log_in(given, *, csrf):
    client = Client(enforce_csrf_checks=csrf)
    if given == "super":
        client.force_login(User.objects.create_superuser("root"))
    elif given is not None:
        client.force_login(person(*given))
    return client


@pytest.mark.parametrize("csrf", [False, True], ids=["", "without token"])
@pytest.mark.parametrize(("given", "seen", "acted", "moved", "added"), PEOPLE.values(), ids=list(PEOPLE))
def test_who_may_see_and_act(given, seen, acted, moved, added, csrf):
    queue = make_queue()
    task, dead = make_task(queue), make_task(make_queue("dead"), "errored")
    client, run = log_in(given, csrf=csrf), Run.objects.get()
    for url in (TASKS, QUEUES, RUNS, page(task), page(queue), page(run)):
        assert client.get(url).status_code == seen, url
    assert client.get(ADD_TASK).status_code == added
    bulk = {"select_across": "1"}
    for name, where in (("task_cancel", task), ("task_requeue", dead), ("queue_pause", queue)):
        wanted = 403 if csrf else acted
        assert act(client, name, where, confirmed=False, follow=False).status_code == wanted
        changed = act(client, name, where, claim="on", reason="because", follow=False, **bulk).status_code
        assert changed == (302 if wanted == 200 else wanted)
    assert fresh(task).status == ("canceled" if acted == 200 and not csrf else "pending")
    assert fresh(dead).status == ("errored" if acted != 200 or csrf else "pending")
    assert row(queue).claim_paused is (acted == 200 and not csrf)
    if not csrf:
        assert act(client, "stator_move", dead, follow=False, confirmed=False).status_code == moved
        Queue.objects.update(claim_paused=False)
    before = Task.objects.count()
    posted = client.post(ADD_TASK, {"queue": queue.pk, "action": "resize"} | CONFIRMED).status_code
    assert posted == (403 if csrf else 302 if added == 200 else added)
    assert Task.objects.count() - before == (added == 200 and not csrf)


def test_readers_are_offered_nothing(client):
    queue = make_queue()
    task = make_task(queue)
    client.force_login(person("view_task", "view_queue", "view_run"))
    for url in (TASKS, QUEUES, page(task), page(queue)):
        text = text_of(client.get(url))
        assert not re.search(r"task_cancel|task_requeue|queue_pause|stator_(?:retry|unlock|move)", text), url
        assert ADD_TASK not in text


# What is stored never becomes markup


def test_characters_that_hide_or_reorder_are_spelled_out(admin_client):
    queue = make_queue("hidden")
    task = queue.publish("resize", {"data": "e\u202eval"}).task
    Queue.objects.update(name="e\u202eval", pause_author="e\u202eval", claim_paused=True)
    change(task, result="e\u202eval", action="e\u202eval")
    Consumer.objects.create(name="e\u202eval")
    for response in (
        admin_client.get(TASKS), admin_client.get(page(task)), admin_client.get(QUEUES), admin_client.get(page(queue)),
        act(admin_client, "task_cancel", task, confirmed=False), admin_client.get("/admin/tasks/consumer/"),
    ):  # fmt: skip
        text = text_of(response)
        assert r"e\u202eval" in text
        assert "e\u202eval" not in re.sub(
            r"<(?:input|option)\b[^>]*>|<textarea.*?</textarea>", "", text, flags=re.DOTALL
        )


def test_hostile_names_and_errors_are_escaped(admin_client):
    queue = make_queue("evil")
    Queue.objects.update(name=EVIL, pause_author=EVIL, pause_reason=EVIL, claim_paused=True)
    queue.refresh_from_db()
    task = queue.publish(EVIL, {"data": EVIL}, key=EVIL, metadata={EVIL: EVIL}).task
    Queue.objects.update(claim_paused=False)
    claim_one(queue).fail(f"{EVIL}\n{EVIL}")
    Run.objects.update(worker=EVIL, reason=f"{EVIL}\n{EVIL}")
    Queue.objects.update(claim_paused=True)
    queue.claimants.update(worker=EVIL)
    Report.objects.update(message=EVIL, error=EVIL)
    History.objects.create(
        model_label="tasks.task", object_pk=str(task.pk), version=1, source="pending", to=EVIL, actor=EVIL, reason=EVIL,
        error=EVIL,
    )  # fmt: skip
    change(task, result=EVIL, worker_ids=[EVIL])
    for response in (
        admin_client.get(TASKS), admin_client.get(page(task)), admin_client.get(QUEUES), admin_client.get(page(queue)),
        admin_client.get(RUNS), admin_client.get(page(Run.objects.get())), admin_client.get(ADD_TASK),
        act(admin_client, "task_cancel", task, confirmed=False),
        act(admin_client, "queue_pause", queue, confirmed=False),
        publish(admin_client, queue, key=EVIL, worker_ids=EVIL, data=EVIL),
        admin_client.get(TASKS, {"q": EVIL, "status": EVIL}),
        act(admin_client, "queue_resume", queue),
    ):  # fmt: skip
        text = text_of(response)
        assert EVIL not in text
        assert escape(EVIL) in text


# Tasks of Django's framework


def test_priority_of_a_task_of_djangos_framework_is_djangos(admin_client):
    for priority in (20, -5):
        examples.add.using(priority=priority).enqueue(1)
    make_task(make_queue(), priority=1661990400000)
    text = text_of(admin_client.get(TASKS, {"o": "9"}))
    found = re.findall(r'field-shown_priority">([^<]*)<', text)
    assert found == ["20", "1661990400000", "-5"], "the most urgent first"
    for task, shown in zip(Task.objects.order_by("priority"), found, strict=True):
        text = text_of(admin_client.get(page(task)))
        assert re.search(rf'field-shown_priority.*?"readonly">{shown}<', text, re.DOTALL)
