"""Golden files of statements: what workers send for models of each kind, and what the verbs of a queue send.

A change of a statement shows in the review as a change of these files. ``GOLDEN=write bin/test tests/golden`` writes
them anew for SQLite and PostgreSQL, ``DB=mariadb GOLDEN=write bin/test tests/golden`` for MariaDB.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import django
import pytest
from django.apps import apps
from django.db import connection

from stator.commands.statements import sent_for
from stator.conf import load_settings
from stator.db import operations_for
from stator.models import Event
from tasks.actions.registry import registry
from tasks.models import Batch, Queue
from tests.statements import sent
from tests.testapp.approvals import Expense
from tests.testapp.baskets import Basket

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(django.VERSION[:2] != (5, 2), reason="the files have what Django 5.2 compiles"),
]

HERE = Path(__file__).parent
WRITES = os.environ.get("GOLDEN") == "write"

# The most statements of an act on one row on PostgreSQL, those of savepoints and notifications with them.
MOST = {
    "move a row by hand": 7,
    "retry a row": 7,
    "an event to one row": 8,
    "publish a task into a new batch": 5,
}

# One for each option that changes statements.
MODELS = {
    "testapp.Step": "an ordinary model, with a timeout and a deletion",
    "testapp.KeptPurchase": "history, and steps",
    "testapp.Expense": "events",
    "testapp.Basket": "moves with its related objects",
    "testapp.Rollout": "waits for related objects",
    "testapp.Ticket": "a priority, and limits of states",
    "testapp.Consignment": "a priority, and turns of a field",
    "testapp.Measure": "fields that outcomes save",
    "testapp.Freight": "atomic batches",
    "testapp.Bill": "a divided table",
    "testapp.Heir": "two tables, by inheritance",
    "testapp.Watch": "timeouts by dates, of a column and of an expression",
    "testapp.Circular": "attempts not before a date, of a column and of an expression",
    "testapp.Mail": "a column of the state with another name and numbers",
    "tasks.Task": "tasks of queues",
}


def test_file_says_which_statements_a_model_has(model_of_file):
    operations = operations_for(model_of_file, load_settings(), "0" * 12, "default")
    said = [f"-- {MODELS[model_of_file._meta.label]}\n"]
    said += [f"-- {verb}\n{text.strip()}\n" for verb, text, _ in sent_for(operations) if "SAVEPOINT" not in text]
    compare(model_of_file._meta.label, said)


@pytest.fixture(autouse=True)
def no_actions_of_other_tests(monkeypatch: Any) -> None:
    """Forget the actions that modules of tests declare: claims of tasks name all that a process has."""
    for name, by_queue in list(registry.items()):
        if not all(each.function.__module__.startswith("tests.testapp.") for each in by_queue.values()):
            monkeypatch.delitem(registry, name)


@pytest.fixture(params=MODELS)
def model_of_file(request):
    return apps.get_model(request.param)


def test_file_says_which_statements_the_verbs_of_a_queue_have():
    queue = Queue.objects.create(name="golden", actions_elsewhere=True, max_attempts=5)
    said: list[str] = []

    def claimed() -> Any:
        [claim] = queue.claim(worker="bot-1")
        return claim

    # Each verb twice: the first time it also makes rows that are there afterwards.
    for _ in range(2):
        queue.publish("resize", {"image": 7})
        claimed().resolve({"ok": True})
    with noted(said, "publish"):
        queue.publish("resize", {"image": 7})
    with noted(said, "publish with a key"):
        queue.publish("resize", {"image": 7}, key="resize-7")
    with noted(said, "publish with that key again"):
        queue.publish("resize", {"image": 7}, key="resize-7")
    with noted(said, "publish many"):
        # With priorities of their own: by default that is the time, which may be equal for all.
        queue.publish_many([{"action": "resize", "data": {"image": n}, "priority": n} for n in range(3)])
    with noted(said, "claim"):
        [claim] = queue.claim(worker="bot-1")
    for verb in ("verify", "heartbeat", "release"):
        with noted(said, verb):
            getattr(claim, verb)()
    for verb, arguments in {"resolve": [{"ok": True}], "fail": ["no disk"], "cancel": []}.items():
        claim = claimed()
        with noted(said, verb):
            getattr(claim, verb)(*arguments)
    compare("queue", said)


def test_file_says_which_statements_acts_on_one_row_have():
    """They are also bounded, by ``MOST``."""
    said: list[str] = []
    expense = Expense.objects.create()
    with noted(said, "create a row"):
        basket = Basket.objects.create()
    with noted(said, "move a row by hand"):
        basket.transition_perform(next(iter(basket.state_graph.initial_state.children)))
    with noted(said, "retry a row"):
        Basket.stator.filter(pk=basket.pk).retry(actor="ada")
    with noted(said, "an event to one row"):
        Expense.objects.get(pk=expense.pk).stator.send("reject", by="ada")
    assert Event.objects.count() == 1
    queue = Queue.objects.create(name="golden", actions_elsewhere=True)
    queue.publish("resize", {"image": 7}, batch=Batch(on_done="resize"))
    with noted(said, "publish a task into a new batch"):
        queue.publish("resize", {"image": 7}, batch=Batch(on_done="resize"))
    compare("acts", said)


@contextmanager
def noted(said: list[str], verb: str) -> Iterator[None]:
    """Add the statements of the block under the name of a verb."""

    with sent() as statements:
        yield
    if connection.vendor == "postgresql":
        assert len(statements) <= MOST.get(verb, len(statements)), statements
    # A process sends few notifications in a second, so whether one is sent depends on the time.
    said += [
        f"-- {verb}\n{same(text)}\n"
        for text in statements
        if not text.startswith(("SAVEPOINT", "RELEASE", "ROLLBACK TO", "BEGIN", "COMMIT")) and "pg_notify" not in text
    ]


def same(text: str) -> str:
    """Return a statement as it is in each run: the names of prepared statements are counted."""
    return re.sub(r"\bstator_\d+\b", "stator_N", text.strip())


def compare(name: str, said: list[str]) -> None:
    """Compare statements with the golden file of this database, or write it."""
    kind = "mariadb" if connection.vendor == "mysql" else connection.vendor
    path = HERE / kind / f"{name}.sql"
    found = "\n".join(dict.fromkeys(said))
    if WRITES:
        path.parent.mkdir(exist_ok=True)
        path.write_text(found)
    assert path.exists(), "run GOLDEN=write bin/test tests/golden"
    assert found == path.read_text()
