"""A table with a status of its own gets a graph: nothing stored changes, old code goes on, workers move what is queued.

``docs/how-to/adopt.rst`` shows this model.
"""

import pytest
from django.db import connection

from tests.processes import wait_until
from tests.projects import Project, temporary_project

BEFORE = """
from django.db import models

class STATUS:
    sent, failed, queued, requeued = range(4)

class Mail(models.Model):
    address = models.CharField(max_length=100)
    state = models.CharField(max_length=20, blank=True)
    status = models.PositiveSmallIntegerField(
        choices=[(0, "sent"), (1, "failed"), (2, "queued"), (3, "requeued")], null=True, blank=True, db_index=True
    )
    scheduled_time = models.DateTimeField(null=True, blank=True)
"""
AFTER = """
from django.db import models
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel

class STATUS:
    sent, failed, queued, requeued = range(4)

class MailGraph(StateGraph):
    queued = State(value=2, try_interval=60, try_at="scheduled_time", force_initial=True)
    requeued = State(value=3, externally_progressed=True)
    failed = State(value=1)
    sent = State(value=0)
    queued.transitions_to(sent, failed, requeued)
    requeued.transitions_to(queued)

    @classmethod
    def handle_queued(cls, mail):
        return cls.sent if mail.address else cls.failed

class Mail(StatorModel):
    address = models.CharField(max_length=100)
    state = models.CharField(max_length=20, blank=True)
    status = StateField[int | None](
        MailGraph, base_field=models.PositiveSmallIntegerField, null=True, blank=True, db_index=True, editable=True
    )
    scheduled_time = models.DateTimeField(null=True, blank=True)
"""
# What the application has done with its column all along.
USED = """
import json
from django.core import serializers
from django.forms import model_to_dict, modelform_factory
from shop.models import STATUS, Mail

assert [mail.status for mail in Mail.objects.order_by("pk")] == [None, 2, 2, 0, 1, 3]
assert Mail.objects.filter(status=STATUS.queued).count() == 2
assert Mail.objects.filter(status__in=[STATUS.sent, STATUS.failed]).count() == 2
assert Mail.objects.filter(status__isnull=True).count() == Mail.objects.filter(status=None).count() == 1
assert Mail.objects.exclude(status=STATUS.sent).count() == 5
assert Mail.objects.filter(status__gt=STATUS.failed).count() == 3
assert Mail.objects.filter(status=STATUS.sent).get().get_status_display().lower() == "sent"
counted = dict(Mail.objects.values_list("status").annotate(models.Count("pk")))
assert counted[STATUS.queued] == 2
assert Mail.objects.filter(status=STATUS.queued, scheduled_time=None).count() == 1
print(json.dumps(list(Mail.objects.order_by("pk").values("address", "status"))))
print(json.dumps([model_to_dict(mail, ["address", "status"]) for mail in Mail.objects.order_by("pk")]))
for form in ("json", "xml"):
    dumped = serializers.serialize(form, Mail.objects.order_by("pk"), fields=["address", "status", "scheduled_time"])
    assert [each.object.status for each in serializers.deserialize(form, dumped)] == [None, 2, 2, 0, 1, 3]
    print(dumped)
form = modelform_factory(Mail, fields=["address", "status"])({"address": "ada@example.org", "status": "3"})
assert form.is_valid(), form.errors
made = form.save()
made.refresh_from_db()
assert made.status == STATUS.requeued
made.delete()
failed = Mail.objects.get(status=STATUS.failed)
failed.status = STATUS.requeued
failed.save(update_fields=["status"])
failed.refresh_from_db()
assert failed.status == STATUS.requeued
failed.status = STATUS.failed
failed.save()
assert Mail.objects.filter(pk=failed.pk).update(status=STATUS.failed) == 1
"""
# The status and the date of each row.
ROWS = [(None, None), (2, None), (2, "2100-01-01 00:00:00"), (0, None), (1, None), (3, None)]
STORED = "SELECT id, status, scheduled_time FROM shop_mail ORDER BY id"
TYPE = {
    "sqlite": "SELECT type FROM pragma_table_info('shop_mail') WHERE name = 'status'",
    # With the file of the table, of which a rewrite makes another one.
    "postgresql": "SELECT format_type(atttypid, atttypmod), attnotnull, relfilenode FROM pg_attribute "
    "JOIN pg_class ON pg_class.oid = attrelid WHERE relname = 'shop_mail' AND attname = 'status'",
    "mysql": "SELECT column_type, is_nullable FROM information_schema.columns "
    "WHERE table_schema = DATABASE() AND table_name = 'shop_mail' AND column_name = 'status'",
}


def statuses(project: Project) -> list[object]:
    return [status for _, status, _ in project.execute(STORED)]


@pytest.mark.fault
def test_table_with_a_status_becomes_managed_and_nothing_stored_changes(tmp_path):
    with temporary_project(tmp_path) as project:
        project.begin("shop")
        project.write("shop/models.py", BEFORE)
        project.make_tables("shop")
        insert = "INSERT INTO shop_mail (address, state, status, scheduled_time) VALUES ('ada@example.org', 'NY', ?, ?)"
        for given in ROWS:
            project.execute(insert, *given)
        used = f"from django.db import models\n{USED}"
        printed = project.manage("shell", "-c", used)
        assert '"status": 2' in printed
        before = project.execute(STORED), project.execute(TYPE[connection.vendor])

        project.write("shop/models.py", AFTER)
        made = project.manage("makemigrations", "shop", "-n", "managed")
        assert "WARNING" not in made, made
        assert "Refuse" not in made
        project.manage("migrate")
        project.manage("makemigrations", "--check", "--dry-run")
        project.manage("check", "--database", "default")
        assert (project.execute(STORED), project.execute(TYPE[connection.vendor])) == before
        assert project.manage("shell", "-c", used) == printed

        with project.process("runstator", "shop.Mail"):
            wait_until(lambda: statuses(project) == [None, 0, 2, 0, 1, 3])
            # Two more of its polls, in which it could do what it should not.
            project.execute("INSERT INTO shop_mail (address, state, status) VALUES ('', 'NY', 2)")
            wait_until(lambda: statuses(project) == [None, 0, 2, 0, 1, 3, 1])
            project.execute("UPDATE shop_mail SET scheduled_time = '2020-01-01 00:00:00' WHERE status = 2")
            wait_until(lambda: statuses(project) == [None, 0, 0, 0, 1, 3, 1])
        alone = "SELECT status FROM shop_mail WHERE state_version = 0 AND state_attempted IS NULL ORDER BY id"
        assert project.execute(alone) == [(None,), (0,), (3,)]
        assert '"unmanaged": 1' in project.manage("stator", "status", "shop.Mail", "--json")

        project.manage("migrate", "shop", "0001")
        assert statuses(project) == [None, 0, 0, 0, 1, 3, 1]
        assert not [name for name in project.columns("shop_mail") if name.startswith("state_")]
