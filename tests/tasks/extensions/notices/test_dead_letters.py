"""Dead letters: each is told once, with all that is known of it, whichever way it came to its end."""

import logging
from datetime import timedelta

import django
import pytest
from django.core import mail
from django.db.models import F
from django.utils import timezone

from stator.runner import StatorRunner
from tasks.dead_letters import letter_of
from tasks.extensions.notices.sending import AGAIN, check_notify, send_notices
from tasks.models import Queue, Schedule, Task
from tests.stator.making import ago, change, expire, raw
from tests.tasks.making import claim_one, fresh, make_queue, make_task, race

pytestmark = pytest.mark.django_db(transaction=True)

letters = []


def keep(letter):
    letters.append(letter)


def refuse(letter):
    raise ConnectionRefusedError("no mail today")


@pytest.fixture(autouse=True)
def kept(settings):
    letters.clear()
    settings.STATOR_TASKS = {"NOTIFY": f"{__name__}.keep"}
    return letters


@pytest.fixture
def queue():
    return make_queue(max_attempts=2)


@pytest.fixture
def administrators(settings):
    settings.STATOR_TASKS = {}
    # Django 6 takes addresses, and what came before it names with addresses.
    settings.ADMINS = ["ada@example.org"] if django.VERSION >= (6, 0) else [("Ada", "ada@example.org")]


def mailed(test):
    """Have what the test tells be mailed, as it is by default."""
    # Django 6.1 wants the settings of mail to be given anew, which is the project's to do.
    return pytest.mark.usefixtures("administrators")(pytest.mark.filterwarnings("ignore:.*default mailer")(test))


def test_letter_has_all_that_is_known_of_the_task(queue):
    task = queue.publish("resize", {"image": 7}).task
    claim_one(queue, "bot-1").release("no graphics card")
    claim_one(queue, "bot-2").fail(RuntimeError("truncated"))
    (letter,) = letters
    assert (letter.id, letter.queue, letter.action, letter.data) == (task.pk, "encode", "resize", {"image": 7})
    assert (letter.attempts, letter.workers) == (2, ["bot-1", "bot-2"])
    assert letter.errors[0] == "bot-1: no graphics card"
    assert letter.errors[1].startswith("bot-2: ")
    assert "RuntimeError: truncated" in letter.errors[1]


def test_each_is_told_once(queue):
    make_task(queue, "errored")
    send_notices("default")
    StatorRunner([Task]).run_single_cycle()
    raw(Task).update(notice_due=F("notice_due") - timedelta(seconds=2 * AGAIN))
    send_notices("default")
    assert len(letters) == 1


def test_told_also_when_the_last_lease_just_runs_out(queue):
    task = queue.publish("resize").task
    for worker in ("bot-1", "bot-2"):
        claim_one(queue, worker)
        expire(task)
    assert not letters
    Task.stator.pause()
    for _ in range(2):
        StatorRunner([Task]).run_single_cycle()
    assert fresh(task).status == "errored"
    assert [letter.errors for letter in letters] == [["bot-1: its lease ran out", "bot-2: its lease ran out"]]


def test_told_again_when_it_was_requeued_and_died_again_with_its_new_errors_alone(queue):
    task = make_task(queue, "errored")
    task.requeue()
    claim = claim_one(queue, "bot-2")
    change(task, state_attempts=99)
    claim.fail("once more")
    assert [letter.workers for letter in letters] == [["maker"], ["bot-2"]]


def test_shared_task_has_one_notice_with_the_errors_of_its_parts(queue):
    task = queue.publish("resize", worker_count=3, max_attempts=1).task
    for number in range(3):
        assert letters == []
        claim_one(queue, f"bot-{number}").fail("no")
    assert [letter.id for letter in letters] == [task.pk]
    assert letters[0].errors == [f"bot-{number}: tasks.Failed: no" for number in range(3)]
    assert letters[0].attempts == 3


def test_notice_that_cannot_be_sent_is_sent_later(queue, settings):
    settings.STATOR_TASKS = {"NOTIFY": f"{__name__}.refuse"}
    task = make_task(queue, "errored")
    assert fresh(task).status == "errored"
    settings.STATOR_TASKS = {"NOTIFY": f"{__name__}.keep"}
    assert send_notices("default") == 0
    assert 0 < (fresh(task).notice_due - timezone.now()).total_seconds() <= AGAIN
    raw(Task).update(notice_due=F("notice_due") - timedelta(seconds=AGAIN))
    assert send_notices("default") == 1
    assert [letter.id for letter in letters] == [task.pk]


@pytest.mark.postgresql
def test_many_who_tell_at_once_tell_each_once(queue):
    for number in range(5):
        raw(Task).create(queue=queue, action=str(number), state="errored")
    assert sum(race(8, lambda name: send_notices("default"))) == 5
    assert sorted(letter.action for letter in letters) == ["0", "1", "2", "3", "4"]


@mailed
def test_by_default_administrators_get_a_mail_and_the_log_a_record(queue, caplog):
    task = make_task(queue, "errored")
    (message,) = mail.outbox
    assert message.to == ["ada@example.org"]
    assert f"task {task.pk} (resize) of queue encode" in message.subject
    assert all(word in message.body for word in ("maker", "no such image", '{"image": 7}'))
    (record,) = [record for record in caplog.records if record.message == "tasks.dead_letter"]
    assert (record.task, record.action, record.workers) == (task.pk, "resize", ["maker"])


def test_letter_knows_errors_of_worker_processes(queue):
    task = queue.publish("break", max_attempts=1).task
    Queue.objects.update(actions_elsewhere=False)
    StatorRunner([Task]).run_single_cycle()
    assert fresh(task).status == "errored"
    (letter,) = letters
    assert letter == letter_of(fresh(task))
    assert "Odd: no" in letter.errors[0]
    assert len(letter.workers) == letter.attempts == 1


@mailed
def test_mail_about_a_failed_tick_names_the_schedule_and_its_error():
    backup = Schedule.objects.create(name="backup", period=3600.0)
    Schedule.objects.filter(pk=backup.pk).update(failed_ticks=1, last_error="OSError: no bucket", notice_due=ago(1))
    assert (send_notices("default"), send_notices("default")) == (1, 0)
    (message,) = mail.outbox
    assert message.subject.endswith("Dead letter: a tick of schedule backup")
    first, *others = message.body.split("\n\n")
    assert first == "a tick of schedule backup failed for good."
    assert "OSError: no bucket" in others
    assert not any(line.startswith("Data:") for line in others)


@mailed
def test_arguments_are_in_no_log_and_in_the_mail_without_secrets(queue, caplog):
    task = queue.publish("resize", {"image": 7, "nested": [{"api_key": "hunter2"}]}, max_attempts=1).task
    claim_one(queue).release("no")
    assert "hunter2" not in "".join(str(vars(record)) for record in caplog.records)
    (message,) = mail.outbox
    assert '"image": 7' in message.body
    assert "hunter2" not in message.body
    assert "hunter2" not in repr(letter_of(fresh(task)))


@mailed
def test_one_dead_letter_is_one_record_at_the_level_error(queue, caplog):
    for end in ("fail", "release"):
        caplog.clear()
        queue.publish("resize", max_attempts=1)
        getattr(claim_one(queue), end)("no")
        assert len([record for record in caplog.records if record.levelno >= logging.ERROR]) == 1, end


@pytest.mark.parametrize("path", ["no.such.thing", "os.sep", "nothing"])
def test_what_is_called_with_dead_letters_must_be_there(settings, path):
    settings.STATOR_TASKS = {"NOTIFY": path}
    assert [message.id for message in check_notify()] == ["tasks.E002"]
