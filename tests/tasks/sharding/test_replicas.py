"""The copies of a queue in its databases."""

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ValidationError
from django.db.models import QuerySet

from stator import signals
from tasks.models import Queue, Task
from tasks.sharding import replicas
from tests.stator.making import raw
from tests.tasks.making import make_queue
from tests.tasks.sharding.databases import BOTH, away, copy_of, every, publish_into

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


class TestCopies:
    def test_every_database_has_a_copy_that_is_equal(self):
        queue = make_queue(databases=BOTH, lease=7, max_attempts=2)
        assert replicas.difference(Queue.objects.get(), "other") == {}
        queue.lease = 9
        queue.save(update_fields=["lease"])
        assert copy_of(queue).lease == 9

    def test_copy_is_paused_for_all_and_changed_at_home_alone(self, queue):
        task = publish_into(queue, "other")
        copy = raw(Task, "other").get(pk=task.pk).queue
        copy.pause(claim=True, author="ann", seconds=60)
        assert Queue.objects.get().claiming_paused
        assert copy_of(queue).claiming_paused
        copy.lease = 9
        with pytest.raises(ValidationError, match="change the original in 'default'"):
            copy.save()

    @pytest.mark.parametrize(
        ("databases", "told"),
        [
            (["default", "gone"], "'gone' is not in DATABASES; choose from default, other"),
            (["other", "other"], "'other' is named twice"),
            ("other", "must be a list of names"),
            ([1], "must be a list of names"),
        ],
    )
    def test_list_that_cannot_work_is_refused_in_one_line(self, databases, told):
        for check in (Queue.full_clean, Queue.save):
            with pytest.raises(ValidationError) as refused:
                check(Queue(name="q", databases=databases))
            [message] = refused.value.message_dict["databases"]
            assert told in message
            assert "\n" not in message

    def test_databases_come_to_a_queue_of_tasks_without_keys(self):
        queue = make_queue()
        queue.publish_many([{"action": "a"}] * 3)
        queue.databases = BOTH
        queue.full_clean()
        queue.save()
        queue.publish_many([{"action": "a"}] * 2)
        assert len(queue.claim(worker="bot-1", limit=10)) == 5

    def test_databases_stay_once_keys_or_values_have_chosen_them(self):
        for queue, options in (
            (make_queue("keyed"), {"key": "k"}),
            (make_queue("exclusive", exclusive_key="title"), {"metadata": {"title": "x"}}),
        ):
            queue.publish("a", **options)
            queue.databases = BOTH
            for check in (queue.full_clean, queue.save):
                with pytest.raises(ValidationError, match="have decided their databases"):
                    check()

    def test_database_with_tasks_does_not_leave_and_one_with_others_does_not_come(self, queue):
        queue.publish_many([{"action": "a"}] * 2)
        queue.databases = ["default"]
        with pytest.raises(ValidationError, match="'other' has tasks of a queue encode; a database leaves"):
            queue.save()
        QuerySet(Queue, using="other").create(name="theirs", actions_elsewhere=True).publish("a")
        with pytest.raises(ValidationError, match="'other' has tasks of a queue theirs; a database comes to"):
            make_queue("theirs", databases=BOTH)

    def test_copy_that_missed_a_pause_is_made_equal_by_workers(self, queue, caplog):
        with away("other"):
            queue.pause(claim=True)
            assert [record.database for record in caplog.records if record.msg == "tasks.copy_failed"] == ["other"]
            # A pass of a worker meanwhile is none the worse for it.
            signals.on_schedule.send(None)
        assert not copy_of(queue).claim_paused
        replicas._resting.clear()
        signals.on_schedule.send(None)
        assert copy_of(queue).claim_paused

    def test_deleted_with_its_copies(self, queue):
        queue.publish_many([{"action": "a"}] * 4)
        queue.delete()
        assert every() == []
        assert not raw(Queue, "other").exists()

    def test_check_finds_a_database_that_is_gone(self, queue):
        assert run_checks(tags=["tasks"], databases=["default"]) == []
        QuerySet(Queue).update(databases=["default", "gone"])
        [error] = run_checks(tags=["tasks"], databases=["default"])
        assert (error.id, "'gone' is not in DATABASES" in error.msg) == ("tasks.E301", True)
        assert run_checks(tags=["tasks"], databases=["other"]) == []
