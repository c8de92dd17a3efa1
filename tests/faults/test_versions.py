"""Two versions of an application as real processes: rolled out beside each other, rolled back, and rolled out again."""

import json
import socket
import subprocess
import sys
from contextlib import ExitStack
from html import unescape

import pytest
from django.conf import settings

from tests.processes import WorkerProcess, environment_for_subprocess, wait_until
from tests.projects import ADMIN_SETTINGS, Project, temporary_project
from tests.sizes import PATIENCE

ALONE = "so a process leaves alone what only others know"

pytestmark = pytest.mark.fault

# What both versions have: an order goes through one state in between, where it stays while it is told to.
MODELS = """
from django.db import models
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class Effect(models.Model):
    # Twice would be an error.
    name = models.CharField(max_length=100, unique=True)


def done(name):
    Effect.objects.create(name=name)


class OrderGraph(StateGraph):
    placed = State(try_interval=0.2, atomic=True)
    {middle} = State(try_interval=0.2, atomic=True)
    sent = State()

    placed.transitions_to({middle})
    {middle}.transitions_to(sent)

    @classmethod
    def handle_placed(cls, instance):
        done(f"order {{instance.pk}} placed")
        return cls.{middle}

    @classmethod
    def handle_{middle}(cls, instance):
        if instance.hold:
            return None
        done(f"order {{instance.pk}} {middle}")
        return cls.sent


class Order(StatorModel):
    hold = models.BooleanField(default=False)
    state = StateField(OrderGraph)
"""

ACTIONS = """
import tasks
from shop.models import done


@tasks.action("mail")
def mail(number):
    done(f"mail {number}")
"""
# The new version has an action more.
MORE = """

@tasks.action("invoice")
def invoice(number):
    done(f"invoice {number}")
"""

FURTHER = (
    ADMIN_SETTINGS
    + """
STATOR = {"POLL_INTERVAL": 0.2, "SCHEDULE_INTERVAL": 0.5, "REAP_INTERVAL": 0.5}
ALLOWED_HOSTS, ROOT_URLCONF, STATIC_URL = ["*"], "urls", "static/"
"""
)
URLS = """
from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
"""

# What serves the site of a version: it makes objects, and shows its pages and commands. One line in, one line out.
SITE = """
import io, json, sys
import django
django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client
from shop.models import Order
from tasks.models import Queue

def make(action, first, count, hold=False):
    queue, _ = Queue.objects.get_or_create(name="default", defaults={"max_attempts": 1})
    for number in range(first, first + count):
        Order.objects.create(pk=number, hold=hold)
        queue.publish(action, number)

def migrate():
    call_command("makemigrations", "shop", verbosity=0)
    call_command("migrate", verbosity=0)

def let_go(*numbers):
    Order.objects.filter(pk__in=numbers).update(hold=False)

def command(*arguments):
    out = io.StringIO()
    call_command("stator", *arguments, "--json", stdout=out)
    return json.loads(out.getvalue())

def explain(number):
    return [[reason.code, reason.sentence] for reason in Order.objects.get(pk=number).explain()]

def explain_task(number):
    queue = Queue.objects.get(name="default")
    return [reason.code for reason in queue.tasks.get(data=number).explain()]

def overview():
    client = Client()
    client.force_login(User.objects.get_or_create(username="root", is_superuser=True, is_staff=True)[0])
    return client.get("/admin/stator/overview/?live=1").content.decode()

for line in sys.stdin:
    name, arguments = json.loads(line)
    print(json.dumps(globals()[name](*arguments)), flush=True)
"""


class Release:
    """One version of the code: its site, and its worker while it is deployed."""

    def __init__(self, project, stack, middle, actions):
        self.project, self.stack = project, stack
        apps = ("admin", "sessions", "messages")
        project.begin(*(f"django.contrib.{app}" for app in apps), "tasks.apps.TasksConfig", "shop", further=FURTHER)
        project.write("urls.py", URLS)
        project.write("shop/models.py", MODELS.format(middle=middle))
        project.write("shop/actions.py", actions)
        self.variables = {
            "PYTHONPATH": f"{project.folder}:{settings.BASE_DIR}", "DJANGO_SETTINGS_MODULE": "settings",
        }  # fmt: skip

    def open(self):
        """Start its site."""
        self.site = self.stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-c", SITE],
                env=environment_for_subprocess(**self.variables),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        self.stack.callback(self.site.stdin.close)

    def ask(self, name, *arguments):
        """Return the result of a function of its site."""
        print(json.dumps([name, arguments]), file=self.site.stdin, flush=True)
        answer = self.site.stdout.readline()
        assert answer, f"the site ended with {self.site.wait(PATIENCE)}; its errors are above"
        return json.loads(answer)

    def deploy(self):
        """Start its worker; return when it has reported itself."""
        # One that is left behind by a test run that was killed ends by itself.
        self.worker = self.stack.enter_context(WorkerProcess("--run-for", "600", **self.variables))
        live = "SELECT 1 FROM stator_worker WHERE pid = ? AND stopped IS NULL"
        wait_until(lambda: self.project.execute(live, self.worker.pid), message=self.worker.output)

    def withdraw(self):
        assert self.worker.stop() == 0, self.worker.output()

    @property
    def name(self):
        """Its worker, as messages name it."""
        return f"{socket.gethostname()}/{self.worker.pid}"

    def differences(self):
        """Return the finding of ``doctor`` on versions."""
        told = [each for each in self.ask("command", "doctor")["findings"] if each["check"] == "versions"]
        return [each["message"] for each in told if each["level"] != "ok"]

    def differences_everywhere(self):
        """The same, if the overview and ``status`` say it too."""
        found = self.differences()
        status = [each for each in self.ask("command", "status")["troubles"] if each["code"] == "versions"]
        assert [f"{each['where']}: {each['sentence']}" for each in status] == found
        page = unescape(self.ask("overview"))
        assert all(each.partition(": ")[2] in page for each in found)
        return found


@pytest.fixture
def releases(tmp_path):
    """The old version and the new one on one database; nothing runs yet but their sites."""
    with temporary_project(tmp_path / "old") as first, ExitStack() as stack:
        (tmp_path / "old").mkdir()
        old = Release(first, stack, "packed", ACTIONS)
        new = Release(Project(tmp_path / "new", first.database), stack, "checked", ACTIONS + MORE)
        old.open()
        new.open()
        old.ask("migrate")
        yield old, new


def test_new_release_is_rolled_out_back_and_out_again_under_load(releases):
    old, new = releases
    old.deploy()
    old.ask("make", "mail", 1, 10)
    old.ask("make", "mail", 11, 3, True)
    wait_for(old, sent=[*range(1, 11)], packed=[11, 12, 13])
    assert old.differences() == []

    # Both, and both sites make objects.
    new.deploy()
    old.ask("make", "mail", 21, 10)
    new.ask("make", "invoice", 31, 10)
    wait_for(new, sent=[*range(21, 41)], packed=[11, 12, 13])
    assert new.differences_everywhere() == [
        f"shop.Order: 2 versions of its graph run, {ALONE}: {old.name} knows packed; {new.name}, this process know "
        "checked; placed differs in options or transitions",
        f"tasks.Task: 2 sets of actions are in use, {ALONE}: {new.name}, this process know invoice; {old.name} "
        "does not",
    ]
    assert old.differences_everywhere() == [
        f"shop.Order: 2 versions of its graph run, {ALONE}: {new.name} knows checked; {old.name}, this process know "
        "packed; placed differs in options or transitions",
        f"tasks.Task: 2 sets of actions are in use, {ALONE}: {new.name} knows invoice; {old.name}, this process do not",
    ]
    # Attempts go on, so the old worker may hold the object at this moment. That is the second reason.
    first, *others = new.ask("explain", 12)
    assert first == [
        "other_version",
        f"State 'packed' is not in the graph of this process; worker {old.name} knows it, so the object waits for it.",
    ]
    assert {code for code, _ in others} <= {"leased"}

    # The new version alone.
    old.withdraw()
    before = columns(new, 11)
    new.ask("let_go", 11)
    new.ask("make", "invoice", 51, 3, True)
    new.ask("make", "mail", 61, 5)
    wait_for(new, sent=[*range(61, 66)], checked=[51, 52, 53], packed=[11, 12, 13])
    assert columns(new, 11) == before
    assert [code for code, _ in new.ask("explain", 11)] == ["unknown_state"]

    # Back: the old version alone, while the new site goes on for a while.
    old.deploy()
    new.withdraw()
    before = columns(old, 52)
    old.ask("let_go", 52)
    new.ask("make", "invoice", 71, 5)
    old.ask("make", "mail", 81, 5)
    wait_for(old, sent=[11, *range(71, 76), *range(81, 86)], checked=[51, 52, 53], packed=[12, 13])
    assert columns(old, 52) == before
    wait_until(lambda: not attempts_of_waiting_tasks(old, "mail"), message=old.worker.output)
    invoices = attempts_of_waiting_tasks(old, "invoice")
    assert (len(invoices) >= 5, set(invoices)) == (True, {0})
    assert new.ask("explain_task", 71)[0] == "action_unserved"

    # Out again; the old version is stopped when nothing is left of what it alone knows.
    new.deploy()
    old.ask("let_go", 12, 13)
    new.ask("let_go", 51, 53)
    wait_for(new, packed=[])
    old.withdraw()
    made = [*range(1, 14), *range(21, 41), *range(51, 54), *range(61, 66), *range(71, 76), *range(81, 86)]
    wait_for(new, sent=made, checked=[])
    wait_until(lambda: not attempts_of_waiting_tasks(new, "mail"), message=new.worker.output)
    wait_until(lambda: not attempts_of_waiting_tasks(new, "invoice"), message=new.worker.output)
    nothing_was_lost_or_done_twice(new.project, made)
    # A worker that could not write its end counts as live until its heartbeat is too old.
    wait_until(lambda: new.differences() == [], message="the old version is still told")


def wait_for(release, **expected):
    """Until these states have these orders; ``sent`` those among others."""

    def arrived():
        states = {}
        for number, state in release.project.execute("SELECT id, state FROM shop_order ORDER BY id"):
            states.setdefault(state, []).append(number)
        return all(
            set(numbers) <= set(states.get(state, ())) if state == "sent" else numbers == states.get(state, [])
            for state, numbers in expected.items()
        )

    wait_until(
        arrived, message=lambda: str(release.project.execute("SELECT state, count(*) FROM shop_order GROUP BY 1"))
    )


def columns(release, number):
    """Return the values of an order that any attempt would change."""
    names = "state, state_version, state_attempts, state_failures, state_crashes, state_claim"
    return release.project.execute(f"SELECT {names} FROM shop_order WHERE id = ?", number)


def attempts_of_waiting_tasks(release, action):
    waiting = "SELECT state_attempts FROM tasks_task WHERE action = ? AND state <> 'completed'"
    return [attempts for (attempts,) in release.project.execute(waiting, action)]


def nothing_was_lost_or_done_twice(project, made):
    effects = sorted(name for (name,) in project.execute("SELECT name FROM shop_effect"))
    invoiced = {number for number in made if 31 <= number <= 53 or 71 <= number <= 75}
    wanted = [f"order {number} placed" for number in made]
    wanted += [f"{'invoice' if number in invoiced else 'mail'} {number}" for number in made]
    through = [name for name in effects if name.endswith((" packed", " checked"))]
    assert sorted({*effects} - {*through}) == sorted(wanted)
    assert sorted(name.split()[1] for name in through) == sorted(map(str, made))
    assert project.execute("SELECT state, state_attempts FROM tasks_task WHERE state <> 'completed'") == []
    assert project.execute("SELECT count(*) FROM shop_order WHERE state_failures > 0 OR state_crashes > 0") == [(0,)]
    assert project.execute("SELECT message FROM stator_report WHERE error <> ''") == []
    assert project.execute("SELECT error FROM stator_history WHERE kind = 'error'") == []
