"""The static look: which writes of a column are found in code, from which value to which."""

import ast

import pytest

from stator.extensions.adopt.flow import FileLook, Vocabulary

WORDS = Vocabulary(
    column="status",
    sql_column="state",
    table="shop_invoice",
    model="Invoice",
    bases=frozenset(["Invoice"]),
    others=frozenset(["Parcel"]),
    constants={"NEW": "new", "STATUS_SENT": "sent"},
    values=frozenset(["new", "sending", "sent", "failed"]),
)


def found(code):
    """The writes of some code, as texts: line, how, from and to, and a question mark if it may be another model."""
    return [_line(write) for write in FileLook(WORDS, "shop/x.py").writes(ast.parse(code))]


def _line(write):
    moves = f"{_set(write.sources, write.creates)} -> {_set(write.targets)}"
    return f"{write.line} {write.how} {moves}{'' if write.sure else ' ?'}"


def _set(values, created=False):
    return "created" if created else "?" if values is None else ",".join(sorted(map(str, values)))


@pytest.mark.parametrize(
    ("code", "writes"),
    [
        ("invoice.status = 'sent'", ["1 assignment ? -> sent"]),
        ("invoice.status = Invoice.STATUS_SENT", ["1 assignment ? -> sent"]),
        ("invoice.status = Invoice.Status.NEW.value", ["1 assignment ? -> new"]),
        ("DONE = 'sent'\ninvoice.status = DONE", ["2 assignment ? -> sent"]),
        ("invoice.status = 'sent' if ok else 'failed'", ["1 assignment ? -> failed,sent"]),
        ("invoice.status = choose()", ["1 assignment ? -> ?"]),
        ("invoice.status: str = 'sent'", ["1 assignment ? -> sent"]),
        ("setattr(invoice, 'status', 'sent')", ["1 assignment ? -> sent"]),
        ("Invoice.objects.update(status='sent')", ["1 update() ? -> sent"]),
        ("await Invoice.objects.filter(status=NEW).aupdate(status='sent')", ["1 update() new -> sent"]),
        (
            "Invoice.objects.filter(status__in=['new', 'failed']).update(status='sent')",
            ["1 update() failed,new -> sent"],
        ),
        ("Invoice.objects.exclude(status='sent').update(status='new')", ["1 update() failed,new,sending -> new"]),
        ("Invoice.objects.filter(Q(status='new')).update(status='sent')", ["1 update() new -> sent"]),
        ("rows = Invoice.objects.filter(status='new')\nrows.update(status='sent')", ["2 update() new -> sent"]),
        ("Invoice.objects.bulk_update(rows, ['status'])", ["1 bulk_update() ? -> ?"]),
        ("Invoice.objects.bulk_update(rows, fields=['total', 'status'])", ["1 bulk_update() ? -> ?"]),
        ("Invoice.objects.create(status='new')", ["1 create() created -> new"]),
        ("Invoice(status='new')", ["1 Invoice() created -> new"]),
        ("Invoice.objects.update_or_create(pk=1, defaults={'status': 'sent'})", ["1 update_or_create() ? -> sent"]),
        ("Invoice.objects.update_or_create(pk=1, defaults=given)", []),
        ("run(\"UPDATE shop_invoice SET state = 'sent' WHERE state = 'new'\")", ["1 SQL new -> sent"]),
        ("run('update \"shop_invoice\" set total=1, state=%s where id=%s')", ["1 SQL ? -> ?"]),
        ("run(f\"UPDATE {table} SET state = 'sent'\")", ["1 SQL ? -> sent ?"]),
        ('run("UPDATE shop_invoice SET state = 3 WHERE state IN (1, 2)")', ["1 SQL 1,2 -> 3"]),
        ("run('INSERT INTO shop_invoice (total, state) VALUES (1, 2)')", ["1 SQL created -> ?"]),
        # A variable has what its function gives it.
        (
            "def f():\n    to = 'sent'\n    if bad:\n        to = 'failed'\n    invoice.status = to",
            ["5 assignment ? -> failed,sent"],
        ),
        ("def f(to):\n    to = to or 'sent'\n    invoice.status = to", ["3 assignment ? -> ?"]),
        ("def f():\n    for to in ways:\n        invoice.status = to", ["3 assignment ? -> ?"]),
        # What only looks like a write.
        ("run('UPDATE shop_other SET state = 1')", []),
        ("run('UPDATE shop_invoice SET total = 1 WHERE state = 2')", []),
        ("Invoice.objects.filter(status='new').update(total=1)", []),
        ("Invoice.objects.filter(status='new').count()", []),
        ("Parcel.objects.update(status='sent')", []),
        ("parcel.status = 'sent'", []),
        ("def f(box: Parcel):\n    box.status = 'sent'", []),
        ("class Parcel:\n    def f(self):\n        self.status = 'sent'", []),
        ("def f():\n    '''UPDATE shop_invoice SET state = 1'''", []),
        # It may be this column, or another one.
        ("thing.status = 'sent'", ["1 assignment ? -> sent ?"]),
        ("answer.update(status='sent')", ["1 update() ? -> sent ?"]),
        ("class Sender:\n    def f(self):\n        self.status = 'sent'", ["3 assignment ? -> sent ?"]),
        ("class Invoice:\n    def f(self):\n        self.status = 'sent'", ["3 assignment ? -> sent"]),
        ("class Invoice:\n    def f(self):\n        self.logs.create(status='sent')", ["3 create() created -> sent ?"]),
        ("class Invoice:\n    def f(cls):\n        cls.objects.create(status='new')", ["3 create() created -> new"]),
        ("def f(one: 'Invoice'):\n    one.status = 'sent'", ["2 assignment ? -> sent"]),
    ],
)
def test_write_is_found_with_what_the_text_shows(code, writes):
    assert found(code) == writes


def test_loop_over_a_query_knows_where_its_rows_come_from():
    code = """
def send():
    for invoice in Invoice.objects.filter(status="new")[:10]:
        invoice.status = "sending"
        invoice.save()
        try:
            post(invoice)
        except OSError:
            invoice.status = "failed"
        else:
            invoice.status = "sent"
        invoice.save()
"""
    assert found(code) == [
        "4 assignment new -> sending",
        "9 assignment sending -> failed",
        "11 assignment sending -> sent",
    ]


def test_comparison_around_a_write_or_before_it_tells_the_value():
    code = """
def pay(invoice):
    if invoice.status != "sent":
        raise ValueError
    invoice.status = "paid"

def again(invoice):
    if invoice.status in ("failed", "sending") and invoice.total:
        invoice.status = "new"
    elif not invoice.status == "new":
        invoice.status = "failed"
"""
    assert found(code) == [
        "5 assignment sent -> paid",
        "9 assignment failed,sending -> new",
        "11 assignment failed,sending,sent -> failed",
    ]


def test_what_is_known_ends_where_the_row_is_another_or_is_read_again():
    code = """
def f():
    invoice = Invoice.objects.get(status="new")
    invoice = Invoice.objects.get(pk=2)
    invoice.status = "sent"

def g(invoice):
    invoice.status = "new"
    invoice.refresh_from_db()
    invoice.status = "sent"

def h(invoice):
    if invoice.status == "new":
        log()
    invoice.status = "sent"
"""
    assert found(code)[0] == "5 assignment ? -> sent"
    assert found(code)[2] == "10 assignment ? -> sent"
    assert found(code)[3] == "15 assignment failed,new,sending,sent -> sent"


def test_ways_that_end_do_not_count_after_a_match_a_with_or_a_while():
    code = """
def f(invoice):
    with transaction.atomic():
        match kind:
            case 1:
                invoice.status = "failed"
                return
            case _:
                pass
        while invoice.status == "new":
            invoice.status = "sending"
    invoice.status = "sent"
"""
    assert found(code) == ["6 assignment ? -> failed", "11 assignment new -> sending", "12 assignment ? -> sent"]
