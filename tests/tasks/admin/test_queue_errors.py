"""Dead letters of a queue on its page, grouped by error."""

import re
from html import unescape

import pytest

from stator.models import Report
from tests.tasks.admin.pages import TASKS, make_dead, page, text_of
from tests.tasks.making import make_queue

pytestmark = pytest.mark.django_db


def test_page_of_a_queue_has_dead_letters_by_error_and_requeues_those_of_one(admin_client):
    queue = make_queue("mail")
    make_dead(queue, 3)
    last = queue.tasks.latest("pk")
    label = {"model_label": "tasks.task", "state": "pending", "fingerprint": "f" * 16}
    trace = 'File "/app/run.py", line 1, in main\n  File "/app/shop/mail.py", line 41, in send\nTimeoutError: away'
    for task in queue.tasks.exclude(pk=last.pk):
        message = f"mail {task.pk} is away\nsince noon"
        Report.objects.create(object_pk=str(task.pk), error="TimeoutError", message=message, traceback=trace, **label)
    response = admin_client.get(page(queue))
    told = [(len(one.pks), one.latest.line, one.latest.place) for one in response.context["queue_dead"]]
    (many, line, at), none = told
    assert (many, at, none) == (2, "shop/mail.py, line 41, in send", (1, "no error is stored", ""))
    assert re.fullmatch(r"TimeoutError: mail \d+ is away", line)
    text = text_of(response)
    assert "No worker process" in text
    # The list has the rows that the number counts, not those of another place with the same error.
    Report.objects.filter(object_pk=str(last.pk)).delete()
    Report.objects.create(object_pk=str(last.pk), error="TimeoutError", message="away", **label)
    chosen = response.context["queue_dead"][0].pks
    listed = re.search(r'href="([^"]*)">2</a>', response.text)
    assert listed is not None
    found = admin_client.get(unescape(listed[1])).context["cl"].result_list
    assert sorted(task.pk for task in found) == sorted(chosen)
    asked = admin_client.post(TASKS, {"action": "task_requeue", "_selected_action": chosen})
    assert "2 dead letters will be requeued" in text_of(asked)
    assert "Per minute" in text_of(asked)


def test_dead_letters_of_named_workers_are_grouped_without_the_numbers_of_their_errors(admin_client):
    queue = make_queue("mail", max_attempts=1)
    for number in range(2):
        queue.publish("print", key=f"{number}")
        [claim] = queue.claim(worker="bot", limit=1)
        claim.fail(f"no paper in tray {number}: refill it")
    [group] = admin_client.get(page(queue)).context["queue_dead"]
    assert len(group.pks) == 2


def test_list_has_the_errors_of_dead_letters_and_requeues_all_with_one(admin_client):
    queue = make_queue("mail")
    make_dead(queue, 3)
    first, second, other = queue.tasks.order_by("pk")
    for task, error in ((first, "TimeoutError"), (second, "TimeoutError"), (other, "KeyError")):
        Report.objects.create(
            model_label="tasks.task", object_pk=str(task.pk), state="pending", error=error, message="<b>away",
            fingerprint=error[0].lower() * 16,
        )  # fmt: skip
    text = text_of(admin_client.get(f"{TASKS}?status=errored"))
    assert "TimeoutError: &lt;b&gt;away" in text
    assert f'<a class="stator-same" href="?error={"t" * 16}">' in text
    same = f"{TASKS}?error={'t' * 16}"
    text = text_of(admin_client.get(same))
    assert "All 2 found:" in text
    assert "KeyError" not in text
    across = {"action": "task_requeue", "index": "0", "select_across": "1", "_selected_action": first.pk}
    assert "2 dead letters will be requeued" in text_of(admin_client.post(same, across))
