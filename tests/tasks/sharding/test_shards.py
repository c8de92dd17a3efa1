"""Queues in several databases: callers see one queue, and what was promised for one database holds for all together."""

import io
import json
from collections import Counter
from contextlib import ExitStack, contextmanager

import pytest
from asgiref.sync import async_to_sync
from django.core.checks import run_checks
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import connections, transaction
from django.db.models import QuerySet
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from stator import signals
from stator.exceptions import LeaseLost
from stator.runner import StatorRunner
from tasks.backend.framework import task_backends
from tasks.exceptions import PublishRefused, QueuePaused, ShardUnavailable, TaskError
from tasks.models import Queue, Run, Shard, Task
from tasks.sharding import copies, shards
from tasks.sharding.numbering import BITS, MOST, database_of, in_order, number_from
from tests.stator.making import raw
from tests.tasks.making import claim_one, make_queue, race, size
from tests.testapp import tasks as examples

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

BOTH = ["default", "other"]
CALLERS, MESSAGES = 20, size(2000, 400)
QUEUES = reverse("admin:tasks_queue_changelist")


@pytest.fixture(autouse=True)
def all_awake():
    copies._resting.clear()
    yield
    copies._resting.clear()


@pytest.fixture
def queue():
    return make_queue(databases=BOTH)


def exclusive():
    return make_queue(databases=BOTH, exclusive_key="title")


def every(**lookups):
    """The tasks of both databases."""
    return [task for alias in BOTH for task in raw(Task, alias).filter(**lookups).order_by("pk")]


def copy_of(queue, alias="other"):
    return raw(Queue, alias).get(name=queue.name)


def values_of(alias, count=1):
    """Texts that stand for this one of both databases."""
    found = [text for text in map(str, range(1000)) if shards._chosen(Queue(databases=BOTH), text) == alias]
    return found[:count]


def publish_into(queue, alias, **options):
    """A task in this database."""
    published = queue.publish("resize", {"image": 7}, key=values_of(alias)[0], **options)
    assert published.task._state.db == alias
    return published.task


@contextmanager
def away(*aliases):
    """As if nobody answered where these databases are."""
    with ExitStack() as stack:
        for alias in aliases:
            connections[alias].close()
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            patch.setitem(connections[alias].settings_dict, "NAME", "/nowhere/nothing")
            patch.setitem(connections[alias].settings_dict, "PORT", "1")
            stack.callback(connections[alias].close)
        yield


class TestPublishing:
    def test_tasks_are_spread_evenly_and_say_where_they_are(self, queue):
        published = queue.publish_many([{"action": "resize"}] * 10)
        assert Counter(each.task._state.db for each in published) == {"default": 5, "other": 5}
        assert {each.outcome for each in published} == {"inserted"}
        assert all(each.task.queue._state.db == each.task._state.db for each in published)
        assert len(every()) == 10

    def test_single_ones_go_to_both(self, queue):
        assert {queue.publish("resize").task._state.db for _ in range(40)} == set(BOTH)

    def test_key_is_looked_for_where_it_was_put(self, queue):
        keys = [*values_of("default", 3), *values_of("other", 3)]
        first = queue.publish_many({"action": "resize", "key": key} for key in keys)
        again = queue.publish_many([{"action": "resize", "key": key} for key in reversed(keys)], update=True)
        assert [each.task._state.db for each in first] == ["default"] * 3 + ["other"] * 3
        assert [each.task for each in again] == [each.task for each in reversed(first)]
        assert {each.outcome for each in again} == {"matched"}
        assert len(every()) == 6

    def test_choice_stays_the_same_in_every_process(self):
        queue = Queue(databases=["a", "b", "c"])
        found = "".join(shards._chosen(queue, text) for text in ("x", "image-7", "\u00e9", "y", "z"))
        assert found == "abacc"

    def test_all_or_none_in_all_databases(self, queue):
        messages = [{"action": "resize", "key": values_of(alias)[0]} for alias in BOTH]
        with pytest.raises(PublishRefused):
            queue.publish_many([*messages, {"action": ""}])
        with away("other"), pytest.raises(ShardUnavailable):
            queue.publish_many(messages)
        assert every() == []

    def test_exclusive_value_decides(self):
        queue = exclusive()
        for alias in BOTH:
            for title in values_of(alias, 3):
                published = queue.publish("a", key=f"key of {title}", metadata={"title": title})
                assert published.task._state.db == alias

    def test_key_stays_one_task_under_another_value(self):
        queue = exclusive()
        (here,), (there,) = values_of("default"), values_of("other")
        first = queue.publish("a", key="k", metadata={"title": here})
        second = queue.publish("a", key="k", metadata={"title": there})
        assert (first.outcome, second.outcome) == ("inserted", "matched")
        assert second.task == first.task
        assert len(every()) == 1
        with pytest.raises(PublishRefused, match="cannot be updated"):
            queue.publish("a", key="k", metadata={"title": there}, update=True)
        assert every()[0].exclusive_value == here

    def test_key_is_one_task_within_a_batch_of_several_values(self):
        queue = exclusive()
        titles = [*values_of("other"), *values_of("default")]
        found = queue.publish_many({"action": "a", "key": "k", "metadata": {"title": title}} for title in titles)
        assert [each.outcome for each in found] == ["inserted", "matched"]
        assert [task.exclusive_value for task in every()] == titles[:1]

    def test_pause_is_heeded(self, queue):
        queue.pause(publish=True, reason="full", author="ann")
        with pytest.raises(QueuePaused, match=r"paused by ann \(full\)"):
            queue.publish("resize")

    def test_database_that_is_away_is_named_and_others_go_on(self, queue):
        with away("other"):
            with pytest.raises(ShardUnavailable, match="database 'other' of queue encode cannot be used"):
                publish_into(queue, "other")
            publish_into(queue, "default")
            # What may go anywhere goes where it can.
            assert {queue.publish("resize").task._state.db for _ in range(20)} == {"default"}
        copies._resting.clear()
        publish_into(queue, "other")

    def test_part_of_a_shared_task_is_where_the_whole_is(self, queue):
        whole = publish_into(queue, "other", worker_count=2)
        assert {task._state.db for task in every(whole=whole.pk)} == {"other"}
        for worker in ("a", "b"):
            claim_one(queue, worker).resolve(worker)
        found = raw(Task, "other").get(pk=whole.pk)
        assert (found.state, found.results) == ("completed", ["a", "b"])


class TestClaiming:
    def test_batch_is_filled_from_all_databases(self, queue):
        queue.publish_many([{"action": "resize"}] * 10)
        claims = queue.claim(worker="bot-1", limit=8)
        assert len(claims) == 8
        assert {claim.task._state.db for claim in claims} == set(BOTH)
        assert len(queue.claim(worker="bot-1", limit=8)) == 2

    def test_none_starves(self, queue):
        queue.publish_many([{"action": "resize"}] * 200)
        found = Counter(claim_one(queue).task._state.db for _ in range(60))
        assert min(found["default"], found["other"]) > 10

    def test_most_urgent_of_each_database_come_first(self, queue):
        queue.publish_many({"action": "resize", "priority": -number} for number in range(20))
        claims = queue.claim(worker="bot-1", limit=20)
        for alias in BOTH:
            priorities = [claim.task.priority for claim in claims if claim.task._state.db == alias]
            assert priorities == sorted(priorities)

    @pytest.mark.parametrize("end", ["resolve", "release", "fail", "cancel"])
    def test_holder_does_all_in_the_database_of_its_task(self, queue, end):
        task = publish_into(queue, "other", max_attempts=1)
        claim = claim_one(queue)
        claim.verify()
        claim.heartbeat(30)
        getattr(claim, end)(*(["no"] if end == "fail" else []))
        with pytest.raises(LeaseLost):
            claim.verify()
        found = raw(Task, "other").get(pk=task.pk)
        assert str(found.state) == {"resolve": "completed", "cancel": "canceled"}.get(end, "errored")
        assert [run.outcome for run in raw(Run, "other")] == [found.runs.get().outcome] != [""]
        assert not raw(Run).exists()

    def test_claim_is_found_by_its_number_and_token(self, queue):
        publish_into(queue, "other")
        claim = claim_one(queue)
        Task.find_claim(claim.task.pk, claim.token).resolve(7)
        assert every()[0].result == 7

    def test_many_are_resolved_at_once(self, queue):
        queue.publish_many([{"action": "resize"}] * 6)
        claims = queue.claim(worker="bot-1", limit=6)
        claims[0].release()
        lost = queue.resolve_many({claim: number for number, claim in enumerate(claims)})
        assert lost == claims[:1]
        assert sorted(task.result for task in every(state="completed")) == [1, 2, 3, 4, 5]

    def test_async_twins(self, queue):
        async def work():
            await queue.apublish_many([{"action": "resize"}] * 4)
            claims = await queue.aclaim(worker="bot-1", limit=4)
            await claims[0].aresolve(0)
            return await queue.aresolve_many(dict.fromkeys(claims[1:], 1))

        assert async_to_sync(work)() == []
        assert {str(task.state) for task in every()} == {"completed"}

    def test_one_database_that_is_away_does_not_stop_the_others(self, queue, caplog):
        queue.publish_many([{"action": "resize"}] * 10)
        with away("other"):
            assert len(queue.claim(worker="bot-1", limit=10)) == 5
            assert queue.claim(worker="bot-1", limit=10) == []
        assert [record.database for record in caplog.records if record.msg == "tasks.shard_unavailable"] == ["other"]
        # It is asked again after a while.
        assert queue.claim(worker="bot-1", limit=10) == []
        copies._resting.clear()
        assert len(queue.claim(worker="bot-1", limit=10)) == 5

    def test_home_that_is_away_does_not_stop_the_others(self, queue):
        queue.publish_many([{"action": "resize"}] * 10)
        with away("default"):
            claims = queue.claim(worker="bot-1", limit=10)
            queue.resolve_many(dict.fromkeys(claims))
        assert Counter(str(task.state) for task in every()) == {"pending": 5, "completed": 5}

    def test_all_that_are_away_are_told(self, queue):
        with away(*BOTH), pytest.raises(ShardUnavailable, match="cannot be used"):
            queue.claim(worker="bot-1")

    def test_pause_is_heeded_everywhere_and_ends_everywhere(self, queue):
        queue.publish_many([{"action": "resize"}] * 4)
        queue.pause(claim=True, author="ann")
        assert queue.claim(worker="bot-1", limit=4) == []
        assert copy_of(queue).pause_told == "paused by ann"
        queue.resume()
        assert len(queue.claim(worker="bot-1", limit=4)) == 4

    def test_worker_holds_one_task_of_all(self):
        queue = make_queue(databases=BOTH, one_per_worker=True)
        for alias in BOTH:
            publish_into(queue, alias)
        claim = claim_one(queue, limit=5)
        assert queue.claim(worker="bot-1", limit=5) == []
        claim.resolve()
        assert len(queue.claim(worker="bot-1", limit=5)) == 1

    def test_worker_that_asks_at_once_holds_one_task_of_all(self):
        queue = make_queue(databases=BOTH, one_per_worker=True)
        queue.publish_many([{"action": "a"}] * 20)
        found = race(8, lambda name: queue.claim(worker="one", limit=3))
        assert sum(map(len, found)) == len(every(state_claim__isnull=False)) == 1

    def test_whoever_holds_a_queue_for_long_hears_of_new_databases(self):
        queue = make_queue()
        held = Queue.objects.get()
        queue.databases = BOTH
        queue.save()
        queue.publish_many([{"action": "resize"}] * 4)
        assert len(held.claim(worker="bot-1", limit=4)) == 4
        stale = Queue.objects.get()
        Queue.objects.update(databases=["other"])
        copies.mirror("encode")
        publish_into(stale, "other")
        assert len(stale.claim(worker="bot-1", limit=4)) == 1


class TestRaces:
    def test_callers_who_claim_in_batches_get_nothing_twice_and_all_is_claimed(self, queue):
        queue.publish_many({"action": "a", "priority": number * 7919 % 1000} for number in range(MESSAGES))

        def claim_all(name):
            found = []
            while batch := queue.claim(worker=name, limit=50):
                found += [claim.task.pk for claim in batch]
            return found

        got = [pk for found in race(CALLERS, claim_all) for pk in found]
        got += [claim.task.pk for claim in queue.claim(worker="last", limit=1000)]
        assert len(got) == len(set(got)) == MESSAGES

    @pytest.mark.parametrize("alias", BOTH)
    def test_publishers_of_one_key_make_one_task(self, queue, alias):
        (key,) = values_of(alias)
        outcomes = race(CALLERS, lambda name: str(queue.publish("a", key=key).outcome))
        assert Counter(outcomes) == {"inserted": 1, "matched": CALLERS - 1}
        assert [task._state.db for task in every()] == [alias]

    def test_publishers_of_one_key_with_different_values_make_one_task(self):
        queue = exclusive()
        titles = [*values_of("default", CALLERS // 2), *values_of("other", CALLERS // 2)]

        def publish(name):
            title = titles[int(name.rpartition("-")[2])]
            return str(queue.publish("a", key="k", metadata={"title": title}).outcome)

        assert Counter(race(CALLERS, publish)) == {"inserted": 1, "matched": CALLERS - 1}
        assert len(every()) == 1

    def test_publishers_of_the_same_batches_never_wait_for_each_other_forever(self, queue):
        keys = [*values_of("default", 10), *values_of("other", 10)]

        def publish(name):
            mine = keys if int(name.rpartition("-")[2]) % 2 else keys[::-1]
            return [str(each.outcome) for each in queue.publish_many({"action": "a", "key": key} for key in mine)]

        outcomes = [outcome for found in race(8, publish) for outcome in found]
        assert Counter(outcomes) == {"inserted": 20, "matched": 140}
        assert len(every()) == 20

    def test_of_one_value_never_two_run(self):
        queue = exclusive()
        titles = [*values_of("default", 2), *values_of("other", 2)]
        count = size(300, 60)
        queue.publish_many({"action": "a", "metadata": {"title": titles[n % 4]}} for n in range(count))
        running, seen = Counter(), []

        def work(name):
            done = misses = 0
            while misses < 200 and len(seen) < count:
                claims = queue.claim(worker=name, limit=4)
                misses = 0 if claims else misses + 1
                for claim in claims:
                    title = claim.task.exclusive_value
                    running[title] += 1
                    seen.append(running[title])
                    claim.verify()
                    running[title] -= 1
                    claim.resolve()
                    done += 1
            return done

        assert sum(race(12, work)) == count
        assert set(seen) == {1}
        assert {str(task.state) for task in every()} == {"completed"}


class TestCopies:
    def test_every_database_has_a_copy_that_is_equal(self):
        queue = make_queue(databases=BOTH, lease=7, max_attempts=2)
        assert copies.difference(Queue.objects.get(), "other") == {}
        queue.lease = 9
        queue.save(update_fields=["lease"])
        assert copy_of(queue).lease == 9

    def test_change_that_is_rolled_back_changes_no_copy(self, queue):
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            queue.lease = 9
            queue.save()
            queue.pause(claim=True)
            raise ZeroDivisionError
        assert (copy_of(queue).lease, copy_of(queue).claim_paused) == (None, False)

    def test_copy_is_paused_for_all_and_changed_at_home_alone(self, queue):
        task = publish_into(queue, "other")
        copy = raw(Task, "other").get(pk=task.pk).queue
        copy.pause(claim=True, author="ann", seconds=60)
        assert Queue.objects.get().claiming_paused
        assert copy_of(queue).claiming_paused
        copy.lease = 9
        with pytest.raises(ValidationError, match="change the one in 'default'"):
            copy.save()

    @pytest.mark.parametrize(
        ("databases", "told"),
        [
            (["default", "gone"], "'gone' is not in DATABASES; there are default, other"),
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

    def test_database_that_is_away_cannot_come(self):
        with away("other"), pytest.raises(ValidationError, match="a database cannot be used"):
            make_queue(databases=BOTH)
        assert not Queue.objects.exists()

    def test_copy_that_missed_a_pause_is_made_equal_by_workers(self, queue, caplog):
        with away("other"):
            queue.pause(claim=True)
            assert [record.database for record in caplog.records if record.msg == "tasks.copy_failed"] == ["other"]
            # A pass of a worker meanwhile is none the worse for it.
            signals.on_schedule.send(None)
        assert not copy_of(queue).claim_paused
        copies._resting.clear()
        signals.on_schedule.send(None)
        assert copy_of(queue).claim_paused

    def test_queue_without_a_copy_says_what_to_do(self, queue):
        raw(Queue, "other").delete()
        with pytest.raises(TaskError, match="no copy in database 'other'; make it with"):
            publish_into(queue, "other")
        queue.publish_many([{"action": "a", "key": key} for key in values_of("default", 3)])
        assert len(queue.claim(worker="bot-1", limit=9)) == 3

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
        assert all(line.endswith("copy as it should be") for line in lines)
        found = json.loads(self.run("--json"))
        assert sum(int(each["waiting"]) for each in found) == 3
        assert sum(int(each["running"]) for each in found) == 1

    def test_command_finds_and_repairs(self, queue):
        raw(Queue, "other").update(lease=3)
        assert "differs in lease; mend it with --repair" in self.run()
        assert copy_of(queue).lease == 3
        assert "copy repaired: lease" in self.run("--repair")
        assert copy_of(queue).lease is None
        raw(Queue, "other").delete()
        assert "missing; make it with --repair" in self.run()
        assert "copy made" in self.run("--repair")
        assert "copy as it should be" in self.run("--repair").splitlines()[1]

    def test_command_tells_of_a_database_that_is_away(self, queue):
        with away("other"):
            assert "encode in other: copy cannot be looked at: OperationalError" in self.run("--repair")

    def test_command_without_such_queues(self):
        make_queue()
        assert self.run() == "No queue is spread over several databases.\n"

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

    def test_many_that_are_enqueued_at_once_are_in_one_of_them(self):
        make_queue("default", databases=["default", "other"])
        calls = [((number,), {}) for number in range(4)]
        results = task_backends["default"].enqueue_many(examples.add, calls)
        assert len({task._state.db for task in every()}) == 1
        assert [task_backends["default"].get_result(result.id).args for result in results] == [[0], [1], [2], [3]]

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


class TestNumbers:
    def test_numbers_tell_the_database(self, queue):
        here, there = publish_into(queue, "default"), publish_into(queue, "other")
        assert here.pk < 1 << BITS < there.pk < 2 << BITS
        assert [database_of(pk) for pk in (here.pk, there.pk)] == BOTH
        assert database_of(5 << BITS) is database_of(1 << 70) is None
        assert (MOST + 1) << BITS <= 2**53

    def test_numbers_never_go_back(self, queue):
        first = publish_into(queue, "other")
        raw(Task, "other").all().delete()
        for _ in range(2):
            number_from(copy_of(queue))
        assert publish_into(queue, "other").pk > first.pk

    def test_numbers_of_another_database_are_refused(self, queue):
        # Taken back, for SQLite would count on from there in other tests.
        with transaction.atomic(using="other"):
            raw(Task, "other").create(pk=(2 << BITS) + 1, queue=copy_of(queue), action="a")
            with pytest.raises(TaskError, match="numbers that belong to another"):
                number_from(copy_of(queue))
            transaction.set_rollback(True, using="other")

    def test_rows_that_are_there_keep_their_numbers(self):
        task = make_queue().publish("a", key="k").task
        make_queue("spread", databases=BOTH)
        claim = claim_one(task.queue)
        assert claim.task.pk == task.pk < 1 << BITS
        assert database_of(task.pk) == "default"

    def test_databases_are_in_the_order_of_their_numbers(self):
        for number, alias in ((2, "a"), (1, "b"), (3, "c")):
            Shard.objects.create(number=number, alias=alias)
        assert in_order(["a", "default", "c", "b"]) == ["default", "b", "a", "c"]
        assert in_order(["a", "default", "c", "b"], (2 << BITS) + 7) == ["a", "c"]


class TestQueuesInOneDatabase:
    """What they cost does not change."""

    @pytest.mark.parametrize("key", [None, "k"])
    def test_publishing_and_claiming_take_no_further_statement(self, key):
        queue = make_queue()
        queue.publish("a")
        queue.claim(worker="bot-1")
        here, there = (CaptureQueriesContext(connections[alias]) for alias in BOTH)
        for act in (lambda: queue.publish("a", key=key), lambda: queue.claim(worker="bot-1")):
            with here, there:
                act()
            sent = [query["sql"] for query in here]
            assert len([sql for sql in sent if 'FROM "tasks_queue"' in sql]) == 1
            assert not [sql for sql in sent if "tasks_shard" in sql]
            assert len(there) == 0

    def test_saving_and_pausing_copy_nothing(self):
        queue = make_queue()
        queue.lease = 3
        queue.save()
        queue.pause(claim=True)
        assert not raw(Queue, "other").exists()
