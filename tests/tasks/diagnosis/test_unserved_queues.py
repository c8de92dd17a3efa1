"""Queues whose tasks no live worker serves, as every view of operators shows them."""

from html import unescape
from types import SimpleNamespace

import pytest
from django.contrib.auth.models import Permission
from django.db import connection
from django.test.utils import CaptureQueriesContext
from prometheus_client import generate_latest

from stator.metrics import SiteMetrics
from tasks.extensions.problems.unserved_queues import unserved
from tasks.models import Task
from tests.commanding import asked, run
from tests.tasks.making import make_queue
from tests.tasks.queue.crew import live_process

OVERVIEW = "/admin/stator/overview/?model=tasks.Task"

pytestmark = pytest.mark.django_db(transaction=True)


def found():
    return list(unserved(SimpleNamespace(using="default")))


class TestFinding:
    def test_each_queue_has_one_with_the_reason_of_its_first_task(self, queue):
        live_process()
        queue.publish_many([{"action": "echo"}, {"action": "typo"}, {"action": "typo"}])
        mail = make_queue("mail")
        mail.publish("resize")
        mail.claim(worker="bot-1", metadata={"none": "such"})
        first, second = found()
        assert (first.numbers, first.count) == ({"reason": "action_unserved", "group": "encode"}, 2)
        assert first.text.startswith(
            "2 ready that no live worker serves: in encode. No live worker has action 'typo' for queue encode"
        )
        assert first.remedy
        assert (second.code, second.numbers["group"], second.count, second.level) == ("named_only", "mail", 1, "ok")

    def test_no_more_than_the_first_in_line_are_examined(self, queue, monkeypatch):
        monkeypatch.setattr("tasks.extensions.problems.unserved_queues.FIRST", 3)
        live_process()
        queue.publish_many([{"action": "typo"}] * 5)
        (one,) = found()
        assert (one.sentence, one.more) == ("3+ ready that no live worker serves", True)

    def test_number_of_statements_does_not_grow_with_the_queues(self, queue):
        live_process()
        queue.publish("typo")
        with CaptureQueriesContext(connection) as one:
            assert len(found()) == 1
        for number in range(5):
            make_queue(f"queue-{number}").publish("typo")
        with CaptureQueriesContext(connection) as many:
            assert [each.numbers["reason"] for each in found()] == ["action_unserved"] * 6
        assert len(many) == len(one) <= 7


class TestOperators:
    def test_views_name_the_queue_and_the_remedy_to_those_who_may_see_tasks(self, queue, client, admin_user):
        live_process()
        task = queue.publish("typo").task
        sentence = "1 ready that no live worker serves: in encode. No live worker has action 'typo' for queue encode"
        remedy = "Deploy code that has the action"
        findings = asked("stator", "doctor", "--database", "default", code=1)["findings"]
        [found] = [found for found in findings if found["check"] == "served"]
        assert (found["level"], sentence in found["message"]) == ("fail", True)
        assert found["remedy"].startswith(remedy)
        client.force_login(admin_user)
        overview = unescape(client.get(OVERVIEW).text)
        assert sentence in overview
        assert remedy in overview
        assert "No live worker has action" in client.get(f"/admin/tasks/task/{task.pk}/change/").text
        admin_user.is_superuser = False
        admin_user.save()
        admin_user.user_permissions.set(Permission.objects.filter(codename="view_overview"))
        overview = unescape(client.get(OVERVIEW).text)
        assert "1 ready that no live worker serves" in overview
        assert "typo" not in overview
        assert "encode" not in overview

    def test_overview_folds_all_but_five_alike(self, client, admin_user):
        live_process()
        for number in range(8):
            make_queue(f"queue-{number}").publish("typo")
        client.force_login(admin_user)
        at_once, folded = client.get(OVERVIEW).text.split("3 more like these in tasks.Task")
        # Their pages and forms name them too, further down.
        folded = folded.partition("</details>")[0]
        assert [f"in queue-{number}." in at_once for number in range(8)] == [True] * 5 + [False] * 3
        assert [f"in queue-{number}." in folded for number in range(8)] == [False] * 5 + [True] * 3

    def test_status_asks_for_no_runstator_where_named_workers_serve(self, queue):
        queue.publish("resize")
        assert queue.claim(worker="bot-1", metadata={"none": "such"}) == []
        told = run("stator", "status")
        assert "start runstator" not in told
        assert "No live worker process.\n" in told
        assert (
            "ok       tasks.Task: 1 ready that only named workers serve: in encode. "
            "Only named workers serve queue encode: 1 is" in told
        )

    @pytest.mark.needs("metrics")
    def test_metric_counts_what_nobody_serves(self, queue):
        live_process()
        queue.publish_many([{"action": "typo"}, {"action": "typo"}, {"action": "echo"}])
        text = generate_latest(SiteMetrics()).decode()
        assert 'stator_unserved{group="encode",model="tasks.task",reason="action_unserved"} 2.0\n' in text
        Task.objects.all().delete()
        assert "stator_unserved{" not in generate_latest(SiteMetrics()).decode()
