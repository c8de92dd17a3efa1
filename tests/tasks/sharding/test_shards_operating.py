"""Commands, workers and the admin with queues in several databases."""

import io
import json
from collections import Counter

import pytest
from django.core.management import call_command
from django.urls import reverse

from stator.runner import StatorRunner
from tasks.backend.framework import task_backends
from tasks.models import Queue, Task
from tests.stator.making import raw
from tests.tasks.making import claim_one, make_queue
from tests.tasks.sharding.databases import BOTH, away, copy_of, every, publish_into, values_of
from tests.testapp import tasks as examples

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

QUEUES = reverse("admin:tasks_queue_changelist")


class TestOperating:
    def run(self, *arguments):
        out = io.StringIO()
        call_command("tasks", "shards", *arguments, stdout=out)
        return out.getvalue()

    def test_command_tells_what_is_where(self, queue):
        queue.publish_many([{"action": "a"}] * 4)
        claim_one(queue)
        lines = self.run().splitlines()
        assert [line.partition(":")[0] for line in lines] == ["encode in default", "encode in other"]
        assert all(line.endswith("copy correct") for line in lines)
        found = json.loads(self.run("--json"))
        assert sum(int(each["waiting"]) for each in found) == 3
        assert sum(int(each["running"]) for each in found) == 1

    def test_command_finds_and_repairs(self, queue):
        raw(Queue, "other").update(lease=3)
        assert "differs in lease; repair it with --repair" in self.run()
        assert copy_of(queue).lease == 3
        assert "copy repaired: lease" in self.run("--repair")
        assert copy_of(queue).lease is None
        raw(Queue, "other").delete()
        assert "missing; create it with --repair" in self.run()
        assert "copy made" in self.run("--repair")
        assert "copy correct" in self.run("--repair").splitlines()[1]

    def test_command_tells_of_a_database_that_is_away(self, queue):
        with away("other"):
            assert "encode in other: copy cannot be checked: OperationalError" in self.run("--repair")

    def test_dead_letters_are_counted_requeued_and_canceled_copy_by_copy(self, queue):
        queue.publish_many([{"action": "a", "max_attempts": 1}] * 6)
        for claim in queue.claim(worker="bot-1", limit=6):
            claim.fail("broken")
        assert [copy.tasks.dead_letters().count() for copy in queue.copies()] == [3, 3]
        assert [copy.tasks.requeue("mended").count for copy in queue.copies()] == [3, 3]
        assert {task.status for task in every()} == {"pending"}
        assert [copy.tasks.cancel() for copy in queue.copies()] == [3, 3]
        assert make_queue("single").copies() == [Queue.objects.get(name="single")]

    def test_task_explains_and_moves_where_it_is(self, queue):
        task = publish_into(queue, "other")
        queue.pause(claim=True, reason="full")
        assert "claim_paused" in [reason.code for reason in raw(Task, "other").get(pk=task.pk).explain()]
        task.cancel()
        assert raw(Task, "other").get(pk=task.pk).status == "canceled"

    def test_worker_of_a_database_runs_its_tasks_and_does_its_chores(self, queue):
        queue.publish_many([{"action": "echo", "data": [number]} for number in range(6)])
        old = publish_into(queue, "other", retention=0)
        old.cancel()
        # Twice: deletion leaves locked rows to the next pass, and InnoDB also locks rows beside those that are written.
        for _ in range(2):
            StatorRunner([Task], until_idle=True, database="other").run()
        assert Counter((task._state.db, str(task.state)) for task in every()) == {
            ("default", "pending"): 3,
            ("other", "completed"): 3,
        }
        StatorRunner([Task], until_idle=True).run()
        assert {str(task.state) for task in every()} == {"completed"}
        assert sorted(task.result for task in every()) == [[[number]] for number in range(6)]

    def test_tasks_of_the_framework_of_django_are_in_any_database_too(self):
        make_queue("default", databases=["other"])
        result = examples.add.enqueue(3, right=4)
        assert [task._state.db for task in every()] == ["other"]
        assert task_backends["default"].get_result(result.id).status == "READY"
        StatorRunner([Task], until_idle=True, database="other").run()
        result.refresh()
        assert result.return_value == 7

    def test_admin_tells_which_databases_and_what_is_in_each(self, admin_client, queue):
        for alias in ("default", "other", "other"):
            queue.publish("a", key=values_of(alias, 9)[len(every())])
        text = admin_client.get(QUEUES).content.decode()
        assert "default 1, other 2" in text
        assert '<td class="field-shown_databases">default, other</td>' in text
        with away("other"):
            assert "default 1, other ?" in admin_client.get(QUEUES).content.decode()
        page = reverse("admin:tasks_queue_change", args=[queue.pk])
        assert "default 1, other 2" in admin_client.get(page).content.decode()

    def test_admin_makes_and_changes_copies_and_refuses_what_cannot_be(self, admin_client):
        made = {"name": "films", "kind": "simple", "exclusive_key": "", "worker_retries": 0, "actions_elsewhere": "on"}
        add = reverse("admin:tasks_queue_add")
        answer = admin_client.post(add, made | {"databases": '["default", "gone"]'})
        assert "&#x27;gone&#x27; is not in DATABASES" in answer.content.decode()
        assert admin_client.post(add, made | {"databases": '["default", "other"]'}).status_code == 302
        queue = Queue.objects.get()
        page = reverse("admin:tasks_queue_change", args=[queue.pk])
        changed = {"worker_retries": 2, "actions_elsewhere": "on"}
        assert admin_client.post(page, changed | {"databases": '["default", "other"]'}).status_code == 302
        assert copy_of(queue).worker_retries == 2
        queue.publish("a", key="k")
        text = admin_client.post(page, changed | {"databases": '["other", "default"]'}).content.decode()
        assert "have decided their databases" in text
        assert Queue.objects.get().databases == BOTH
