"""``stator adopt`` in a project of its own: the report, the module that it writes, and its refusals."""

import json
import re
from functools import cache

import pytest

from tests.projects import temporary_project

MODELS = """
from django.contrib.contenttypes.models import ContentType
from django.db import models


class Invoice(models.Model):
    class Status(models.TextChoices):
        NEW = "new"
        SENDING = "sending"
        SENT = "sent", "Sent to the customer"
        FAILED = "failed"

    status = models.CharField(max_length=20, choices=Status, default=Status.NEW)
    total = models.IntegerField(default=0)
    updated_at = models.DateTimeField()


class Mail(models.Model):
    SENT, FAILED, QUEUED = range(3)
    CHOICES = [(SENT, "sent"), (FAILED, "failed"), (QUEUED, "queued")]
    status = models.PositiveSmallIntegerField(choices=CHOICES, null=True)


class Letter(models.Model):
    status = models.SlugField(max_length=20, default="written", db_column="state")


class InvoiceLog(models.Model):
    invoice = models.ForeignKey(Invoice, models.CASCADE)
    status = models.CharField(max_length=20)


class InvoiceAudit(models.Model):
    # In the database of another program.
    invoice = models.ForeignKey(Invoice, models.CASCADE)
    status = models.CharField(max_length=20)

    class Meta:
        managed = False


class InvoiceLine(models.Model):
    # Has a status of its own, and is no history.
    invoice = models.ForeignKey(Invoice, models.CASCADE)
    status = models.CharField(max_length=20)


class InvoiceMove(models.Model):
    invoice = models.ForeignKey(Invoice, models.CASCADE)
    old_status = models.CharField(max_length=20)
    new_status = models.CharField(max_length=20)


class AuditEntry(models.Model):
    content_type = models.ForeignKey(ContentType, models.CASCADE)
    object_id = models.BigIntegerField()
    changes = models.JSONField()
    # As in django-auditlog, where it is empty unless asked for.
    serialized_data = models.JSONField(null=True)


class SavedVersion(models.Model):
    content_type = models.ForeignKey(ContentType, models.CASCADE)
    object_id = models.CharField(max_length=191)
    serialized_data = models.TextField()


class StateLog(models.Model):
    # The columns of django-fsm-log: texts, whatever the column of the state has.
    content_type = models.ForeignKey(ContentType, models.CASCADE)
    object_id = models.PositiveIntegerField()
    source_state = models.CharField(max_length=255, null=True)
    state = models.CharField(max_length=255)
    transition = models.CharField(max_length=255)
"""

SEND = """
from shop.models import Invoice, Letter, Mail


def send():
    for invoice in Invoice.objects.filter(status="new"):
        invoice.status = "sending"
        invoice.save()
        try:
            post(invoice)
        except OSError:
            invoice.status = Invoice.Status.FAILED
        else:
            invoice.status = "sent"
        invoice.save()


def void(pk):
    Invoice.objects.filter(pk=pk).update(status="void")


def deliver():
    Mail.objects.filter(status=Mail.QUEUED).update(status=Mail.SENT)


def sweep():
    letters = list(waiting())
    ends = {letter.pk: "posted" if post(letter) else "lost" for letter in letters}
    for letter in letters:
        status = "posted" if ends[letter.pk] else "lost"
        Letter.objects.filter(pk=letter.pk).update(status=status)


def waiting():
    return Letter.objects.filter(status__in=["written"])


def write():
    Letter.objects.create(status="written")
"""

FILL = """
from datetime import timedelta
from django.contrib.contenttypes.models import ContentType
from django.utils import timezone
from shop.models import *

now = timezone.now()
rows = [("sent", 1)] * 30 + [("sending", 41)] * 5 + [("new", 0)] * 10 + [("Sent", 90)]
invoices = [Invoice.objects.create(status=status, updated_at=now - timedelta(days=days)) for status, days in rows]
Mail.objects.bulk_create([*(Mail(status=0) for _ in range(9)), Mail(status=2), Mail()])
first, second = invoices[:2]
for one in (first, second):
    for status in ("new", "sending", "sent"):
        InvoiceLog.objects.create(invoice=one, status=status)
    InvoiceLine.objects.create(invoice=one, status="packed")
    InvoiceLine.objects.create(invoice=one, status="shipped")
InvoiceMove.objects.create(invoice=first, old_status="sent", new_status="failed")
kind, other = ContentType.objects.get_for_model(Invoice), ContentType.objects.get_for_model(Mail)
for change in (["failed", "new"], ["None", "new"]):
    AuditEntry.objects.create(content_type=kind, object_id=first.pk, changes={"status": change, "total": ["1", "2"]})
AuditEntry.objects.create(content_type=other, object_id=1, changes={"status": ["2", "0"]})
for status in ("sending", "new"):
    text = '[{"fields": {"status": "%s", "total": 1}}]' % status
    SavedVersion.objects.create(content_type=kind, object_id=str(first.pk), serialized_data=text)
StateLog.objects.create(content_type=other, object_id=1, source_state="2", state="0", transition="deliver")
"""


@pytest.fixture(scope="module")
def project(django_db_blocker, tmp_path_factory):
    """A project with rows, code that writes their status, and tables with what it was."""
    with django_db_blocker.unblock(), temporary_project(tmp_path_factory.mktemp("adopt")) as made:
        made.begin("shop")
        made.write("shop/models.py", MODELS)
        made.write("shop/send.py", SEND)
        made.write("shop/tests/test_send.py", "Invoice.objects.update(status='sent')")
        made.write("shop/migrations/0009_old.py", "def f(apps):\n    Invoice.objects.update(status='old')")
        made.write("shop/broken.py", "invoice.status = 'sent'\nif")
        (made.folder / "shop/migrations/0009_old.py").unlink()
        # An editor locks a file so.
        (made.folder / "shop/.#send.py").symlink_to("me@host.1234")
        made.make_tables("shop")
        made.manage("shell", "-c", FILL)
        yield made


@cache
def asked(project, *arguments):
    """The report on a column, which is made once."""
    return json.loads(project.manage("stator", "adopt", *arguments, "--json"))


def test_report_has_values_with_rows_ages_and_what_nothing_moves(project):
    found = asked(project, "shop.Invoice.status")
    values = {each["value"]: (each["rows"], each["unmoved"]) for each in found["values"]}
    assert values == {"sent": (30, 30), "sending": (5, 5), "new": (10, 0), "Sent": (1, 1)}
    assert found["ages"]["name"] == "updated_at"
    [oldest] = [each["oldest"] for each in found["values"] if each["value"] == "sending"]
    assert oldest == pytest.approx(41 * 86400, abs=3600)
    assert found["rows"]["whole"]


def test_report_has_the_places_of_the_projects_code_that_write_the_column(project):
    found = asked(project, "shop.Invoice.status")
    writes = [(each["line"], each["sources"], each["targets"]) for each in found["writes"]]
    assert writes == [
        (7, ["new"], ["sending"]), (12, ["sending"], ["failed"]), (14, ["sending"], ["sent"]), (19, None, ["void"]),
    ]  # fmt: skip
    assert {each["file"] for each in found["writes"]} == {"shop/send.py"}
    assert [each.partition(": ")[0] for each in found["code"]["skipped"]] == ["shop/.#send.py", "shop/broken.py"]


def test_report_has_the_moves_that_other_tables_have_recorded(project):
    found = asked(project, "shop.Invoice.status")
    moves = {each["label"]: each["moves"] for each in found["histories"]}
    assert moves == {
        "shop.InvoiceLog": [["sending", "sent", 2], ["new", "sending", 2]],
        "shop.InvoiceMove": [["sent", "failed", 1]],
        "shop.AuditEntry": [["failed", "new", 1]],
        "shop.SavedVersion": [["sending", "new", 1]],
        "shop.StateLog": [],
        "shop.InvoiceAudit": [],
    }
    asks = "Recorded, but not seen in the code: sending to new, sent to failed, failed to new."
    assert any(text.startswith(asks) for text in found["decisions"])
    [trouble] = [each["trouble"] for each in found["histories"] if each["trouble"]]
    assert re.match(r"it could not be read: .*shop_invoiceaudit", trouble)


def test_proposed_graph_joins_the_evidence_and_says_what_it_assumes(project):
    graph = asked(project, "shop.Invoice.status")["graph"]
    assert graph["initial"] == "new"
    assert [each["name"] for each in graph["states"]] == ["new", "sending", "sent", "failed", "Sent", "void"]
    ways = {(each["source"], each["target"]): (each["recorded"], each["assumed"]) for each in graph["transitions"]}
    assert ways == {
        ("new", "sending"): (2, False), ("new", "Sent"): (0, True), ("new", "void"): (0, True),
        ("sending", "new"): (1, False), ("sending", "sent"): (2, False), ("sending", "failed"): (0, False),
        ("sent", "failed"): (1, False), ("failed", "new"): (1, False),
    }  # fmt: skip


def test_sweep_that_asks_in_one_place_and_writes_in_another_is_seen(project):
    graph = asked(project, "shop.Letter.status")["graph"]
    ways = {(each["source"], each["target"]): each["asked"] for each in graph["transitions"]}
    assert ways == {("written", "lost"): "shop/send.py:31", ("written", "posted"): "shop/send.py:31"}
    options = 'base_field=models.SlugField, max_length=20, db_index=True, db_column="state"'
    assert graph["field"] == f"status = StateField(LetterGraph, {options})"


def test_column_with_numbers_and_null_has_states_by_its_constants_and_logs_with_texts(project):
    found = asked(project, "shop.Mail.status")
    assert found["decisions"][1] == "1 row with NULL: do they begin in queued, or stay outside (null=True)?"
    states = [(each["name"], each["value"]) for each in found["graph"]["states"]]
    assert (states, found["graph"]["initial"]) == ([("sent", 0), ("failed", 1), ("queued", 2)], "queued")
    moves = {each["label"]: each["moves"] for each in found["histories"]}
    assert moves["shop.StateLog"] == [[2, 0, 1]]


IMPORTS = """
from django.db import models
from stator import StateField, StatorModel
from shop.graphs import InvoiceGraph
from shop.mail_graphs import MailGraph
"""


def test_written_modules_take_the_place_of_the_columns_and_pass_the_checks(project):
    """Nothing stored changes, whatever type the column has, and rows are in the states of their values."""
    fields = {}
    for label, path in (("shop.Invoice", "shop/graphs.py"), ("shop.Mail", "shop/mail_graphs.py")):
        printed = project.manage("stator", "adopt", f"{label}.status", "--write", path)
        assert printed.splitlines()[-1].startswith(f"Written to {path}.")
        fields[label] = asked(project, f"{label}.status")["graph"]["field"]
    assert fields["shop.Invoice"] == "status = StateField(InvoiceGraph, max_length=20)"
    managed, before = MODELS, project.execute("SELECT id, status FROM shop_mail ORDER BY id")
    for name, field in fields.items():
        model = name.partition(".")[2]
        managed = re.sub(
            rf"(class {model}\()models.Model(\):.*?\n)    status = [^\n]+",
            rf"\1StatorModel\2    {field}",
            managed,
            count=1,
            flags=re.DOTALL,
        )
    project.write("shop/models.py", IMPORTS + managed)
    try:
        assert project.manage("check", "--fail-level", "WARNING").startswith("System check identified no issues")
        project.manage("makemigrations", "shop")
        project.manage("migrate")
        assert project.execute("SELECT id, status FROM shop_mail ORDER BY id") == before
        counts = "from shop.models import *; print(Mail.stator.counts(), Invoice.stator.counts())"
        said = project.manage("shell", "-c", counts)
        assert "'sent': 9, 'failed': 0, 'queued': 1, 'unmanaged': 1" in said
        assert "'new': 10, 'sending': 5, 'sent': 30, 'failed': 0, 'Sent': 1, 'void': 0" in said
    finally:
        # The report on the former columns is the same beside further ones.
        project.write("shop/models.py", MODELS)


BAD = [
    (["shop.Invoice"], "'shop.Invoice' must be app.Model.column; shop.Invoice has status"),
    (["shop.Invoce.status"], "'shop.Invoce' is not a model; did you mean shop.Invoice?"),
    (["Invoice.status"], "'Invoice.status' must be app.Model.column"),
    (["shop.Invoice.statu"], "shop.Invoice has no column 'statu'; did you mean 'status'?"),
    (
        ["shop.Invoice.updated_at"],
        "shop.Invoice.updated_at is a DateTimeField; a status is a text or an integer; shop.Invoice has status",
    ),
    (["auth.User.last_name"], "auth.User.last_name has no values: no row, no choices, no write in the code"),
    (["shop.Invoice.status", "--by", "total"], "--by 'total' is not a DateTimeField of shop.Invoice"),
    (["shop.Invoice.status", "--rows", "0"], "--rows 0 must be above 0"),
    (["shop.Invoice.status", "--write", "graphs.txt"], "--write 'graphs.txt' must be the name of a module"),
    (["shop.Invoice.status", "--write", "no/graphs.py"], "--write 'no/graphs.py': there is no folder 'no'"),
    (["shop.Invoice.status", "--write", "shop/send.py"], "--write 'shop/send.py' exists; name a new file"),
    (["shop.Invoice.status", "--database", "none"], "--database 'none' is not in DATABASES"),
]
REFUSED = """
import json
from django.core.management import CommandError, call_command

told = []
for arguments in {calls}:
    try:
        call_command("stator", "adopt", *arguments)
    except CommandError as error:
        told.append(str(error))
print(json.dumps(told))
"""


def test_bad_arguments_get_one_line(project):
    printed = project.manage("shell", "-c", REFUSED.format(calls=[arguments for arguments, _ in BAD]))
    for (arguments, line), told in zip(BAD, json.loads(printed.splitlines()[-1]), strict=True):
        assert line in told, arguments
        assert "\n" not in told
