"""A project is switched to this package and back by the commands of the guide, with rows in every kind of state."""

import re
import shutil
import textwrap
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest
from django.conf import settings

from tests.processes import wait_until
from tests.projects import conninfo, temporary_project

HERE = Path(__file__).parent
GUIDE = (settings.BASE_DIR / "docs/guides/from-takahe.rst").read_text()

FURTHER = """
STATIC_URL, STATIC_ROOT = "static/", "static"
MARKED = {marked}
"""

# By name: the state, and what is said of it. ``due``, ``locked`` and ``changed`` are seconds from now; ``due`` is None
# where the row was never attempted in its state.
POSTS = {
    "new": ("new", {}), "overdue": ("new", {"due": -60}), "patient": ("new", {"due": -60}),
    "waiting": ("new", {"due": 3000}), "locked": ("new", {"locked": 200}),
    "left locked": ("edited", {"due": -5, "locked": -5}), "external": ("fanned_out", {}),
    "external, late": ("fanned_out", {"changed": -11 * 86400}), "terminal": ("read", {}),
    "deleted": ("deleted", {"changed": -8 * 86400}), "kept": ("deleted", {"changed": -6 * 86400}),
}  # fmt: skip
SWITCHED = {
    "new": "fanned_out", "overdue": "fanned_out", "patient": "new", "waiting": "new", "locked": "fanned_out",
    "left locked": "fanned_out", "external": "fanned_out", "external, late": "deleted", "terminal": "read",
    "kept": "deleted",
}  # fmt: skip
# What workers have written on; of the others not even that.
NOTED = {"new", "overdue", "patient", "locked", "left locked"}

FILL = """
from datetime import timedelta
from django.conf import settings
from django.utils import timezone
from activities.models import Domain, Post, PostStates, Setting

def moment(seconds):
    return timezone.now() + timedelta(seconds=seconds)

def columns(state, due=None, locked=None, changed=-5000):
    found = {{"state": state, "state_changed": moment(changed), "state_locked_until": locked and moment(locked)}}
    if settings.MARKED:
        interval = {intervals}[state]
        found["state_ready"] = due is None
        found["state_attempted"] = moment(due - interval) if due is not None else None
    else:
        found["state_next_attempt"] = moment(due) if due is not None else None
    return found

Setting.objects.create(greeting="configured")
for name, (state, said) in {posts!r}.items():
    Post.objects.filter(pk=Post.objects.create(name=name).pk).update(**columns(state, **said))
for number in range(31):
    due = Domain.objects.create()
    Domain.objects.filter(pk=due.pk).update(**columns("updated", due=72000 + number))
Domain.objects.create()
"""
INTERVALS = {"new": 3600, "edited": 600, "fanned_out": 0, "read": 0, "deleted": 0, "updated": 86400}


def section(title):
    """The text below a heading of the guide, up to the next."""
    [found] = re.findall(rf"^{title}\n-+\n(.*?)(?=^[^\n]+\n-{{3,}}\n|\Z)", GUIDE, re.MULTILINE | re.DOTALL)
    return found


def blocks(text):
    """The literal blocks of a text, in their order."""
    found = re.findall(r"::\n\n((?:(?:    .*)?\n)+)", text)
    return [textwrap.dedent(block).strip("\n") + "\n" for block in found]


def commands(text):
    """What follows ``manage.py`` on each line of the literal blocks of a text."""
    prompt = "python manage.py "
    lines = [line for block in blocks(text) for line in block.splitlines()]
    return [line.removeprefix(prompt).split() for line in lines if line.startswith(prompt)]


@pytest.fixture(params=["earlier", "later"])
def before(tmp_path, request):
    """The project with the package of before, of earlier or of later versions, and rows."""
    with temporary_project(tmp_path) as project:
        shutil.copytree(HERE / "project", tmp_path, dirs_exist_ok=True)
        put_package_of_before(project)
        project.begin(
            "django.contrib.staticfiles", "activities", further=FURTHER.format(marked=request.param == "earlier")
        )
        project.manage("makemigrations", "activities")
        project.manage("migrate")
        project.manage("shell", "-c", FILL.format(posts=POSTS, intervals=INTERVALS))
        yield project


def put_package_of_before(project):
    shutil.copytree(HERE / "before/stator", project.folder / "stator")


def take_package_of_before_away(project):
    shutil.rmtree(project.folder / "stator")


def migrations(project):
    return sorted((project.folder / "activities/migrations").glob("0*.py"))


def switch(project, migrating=nullcontext):
    """Everything up to the workers; web processes may be at work while the tables are migrated."""
    text = section("Switching")
    [_, _, receiver, *_] = blocks(text)
    *steps, start = commands(text)
    assert start == ["runstator"]
    for step in steps:
        if step == ["makemigrations"]:
            take_package_of_before_away(project)
            project.write("activities/apps.py", receiver)
        with migrating() if step == ["migrate"] else nullcontext():
            printed = project.manage(*step)
        assert step[0] != "check" or "no issues" in printed


def posts(project):
    """The state and the note of each post, by its name."""
    found = project.execute("SELECT name, state, note FROM activities_post")
    return {name: (state, note) for name, state, note in found}


def dues(project, table):
    return dict(project.execute(f"SELECT id, state_next_attempt FROM {table} WHERE state_next_attempt IS NOT NULL"))


@pytest.mark.fault
def test_project_is_switched_and_back_by_the_commands_of_the_guide(before, request):
    project = before
    old_columns = project.columns("activities_post")
    old_indexes = project.indexes("activities_post")

    switch(project)
    assert project.execute("SELECT count(*) FROM activities_post WHERE state_ready") == [(0,)]
    assert [name[:5] for name in project.indexes("activities_post")] == ["st_cr", "st_fa", "st_le", "st_re", "st_re"]
    assert (project.folder / "static/stator").is_dir()
    later = dues(project, "activities_domain")
    assert len(later) == 31
    project.manage("runstator", "--until-idle")
    found = posts(project)
    assert {name: state for name, (state, _) in found.items()} == SWITCHED
    assert {name for name, (_, note) in found.items() if note == "configured"} == NOTED
    # Nothing was attempted early, and the one new domain now waits for its first day.
    assert {pk: due for pk, due in dues(project, "activities_domain").items() if pk in later} == later
    assert project.execute("SELECT sum(state_attempts), sum(lookups), count(*) FROM activities_domain") == [(0, 1, 32)]

    if request.node.callspec.params["before"] == "earlier":
        # What is undone of its columns is in tests/stator/test_adoption.py; the commands are the same.
        return
    *undo, migrate, start = commands(section("Going back"))
    assert undo[-1] == ["migrate", "stator", "zero"]
    for step in undo:
        project.manage(*step)
    put_package_of_before(project)
    project.write("activities/apps.py", "")
    for path in migrations(project)[1:]:
        path.unlink()
    project.manage(*migrate)
    assert project.columns("activities_post") == old_columns
    assert project.indexes("activities_post") == old_indexes
    project.execute("UPDATE activities_post SET state = 'edited' WHERE name = 'external'")
    project.execute("UPDATE activities_setting SET greeting = 'old'")
    project.manage(*start)
    found = posts(project)
    # The old package attempts what is due, and nothing that waits.
    assert {name: state for name, (state, _) in found.items()} == SWITCHED
    assert {name for name, (_, note) in found.items() if note == "old"} == {"external"}
    assert project.execute("SELECT sum(lookups) FROM activities_domain") == [(1,)]
    project.manage("makemigrations", "--check", "--dry-run")


later_alone = pytest.mark.parametrize("before", ["later"], indirect=True)


def transactions(project, tables, ended, failures, done):
    """Requests that lock a row of one table and then of another, each for a while, until ``ended``."""
    while not ended.is_set():
        try:
            with closing(psycopg.connect(**conninfo(project.database))) as request:
                for table in tables:
                    request.execute(f"UPDATE activities_{table} SET state_changed = state_changed WHERE id = 1")
                    request.execute("SELECT pg_sleep(0.15)")
                request.commit()
            done.append(tables)
        except psycopg.Error as error:
            failures.append(error)


@pytest.mark.fault
@pytest.mark.postgresql
@later_alone
def test_tables_are_migrated_beside_slow_requests_and_nobody_is_the_victim_of_a_deadlock(before):
    ended, failures, done = Event(), [], []

    @contextmanager
    def at_work():
        # Both lock in one order, so they do not get in each other's way.
        requests = [
            Thread(target=transactions, args=(before, tables, ended, failures, done))
            for tables in (("post", "domain"), ("post", "domain"), ("domain",))
        ]
        for request in requests:
            request.start()
        try:
            wait_until(lambda: len(done) > 1)
            yield
        finally:
            ended.set()
            for request in requests:
                request.join()

    switch(before, at_work)
    assert failures == []
    assert "state_claim" in before.columns("activities_domain")
    assert len(before.indexes("activities_post")) == len(before.indexes("activities_domain")) == 5


@pytest.mark.fault
@later_alone
def test_tables_of_the_old_package_that_were_forgotten_stop_the_migration(before):
    columns = before.columns("activities_post")
    take_package_of_before_away(before)
    before.manage("makemigrations")
    printed = before.manage("migrate", code=1)
    assert "stator.E301" in printed
    assert "run manage.py migrate stator zero" in printed
    assert before.columns("activities_post") == columns
    [line] = before.manage("runstator", code=75).splitlines()
    assert "another package" in line
    assert line.endswith("remove the migrations that were made with this one, and run manage.py migrate stator zero")

    for path in migrations(before)[1:]:
        path.unlink()
    put_package_of_before(before)
    before.manage("migrate", "stator", "zero")
    take_package_of_before_away(before)
    before.manage("makemigrations")
    before.manage("migrate")
    assert "state_claim" in before.columns("activities_post")
