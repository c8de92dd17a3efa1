"""States are renamed and removed on a large table while workers of both versions of the code are at work."""

import threading
from contextlib import ExitStack, contextmanager
from time import monotonic

import pytest
from django.conf import settings
from django.db import connection

from tests.processes import WorkerProcess, wait_until
from tests.projects import Project, temporary_project
from tests.sizes import CROWDED, size

pytestmark = pytest.mark.fault

ROWS = size(200_000, 10_000)
# Seconds in which no worker moves anything, though there are objects to move.
STALL = 1.0

MODELS = """
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class OrderGraph(StateGraph):
    placed = State(try_interval=5, force_initial=True)
    {states}
    sent = State()

    placed.transitions_to({middle})
    {middle}.transitions_to(sent)
    {further}

    @classmethod
    async def handle_placed(cls, instance):
        return cls.{middle}

    @classmethod
    async def handle_{middle}(cls, instance):
        return cls.sent


class Order(StatorModel):
    state = StateField(OrderGraph)
"""
OLD = MODELS.format(
    middle="packed",
    states="packed = State(try_interval=5)\n    parked = State(externally_progressed=True)",
    further="parked.transitions_to(sent)",
)
NEW = MODELS.format(middle="checked", states="checked = State(try_interval=5, renamed_from='packed')", further="")
FURTHER = 'STATOR = {"POLL_INTERVAL": 0.2, "SCHEDULE_INTERVAL": 0.5, "REAP_INTERVAL": 0.5, "LEASE": 5}'

# The moves of each version, by its workers and by the migration.
BY_WORKERS = {("placed", "packed"), ("packed", "sent"), ("placed", "checked"), ("checked", "sent")}
RENAMED, REMAPPED = ("packed", "checked"), ("parked", "sent")

MOVES = {
    "sqlite": [
        "CREATE TABLE move (pk bigint, source text, target text, version bigint, at double)",
        "CREATE TRIGGER move AFTER UPDATE OF state ON shop_order WHEN old.state <> new.state BEGIN INSERT INTO move "
        "VALUES (new.id, old.state, new.state, new.state_version, 86400 * julianday('now')); END",
    ],
    "postgresql": [
        "CREATE TABLE move (pk bigint, source text, target text, version bigint, at double precision)",
        "CREATE FUNCTION move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO move VALUES (NEW.id, "
        "OLD.state, NEW.state, NEW.state_version, extract(epoch FROM clock_timestamp())); RETURN NULL; END $$",
        "CREATE TRIGGER move AFTER UPDATE OF state ON shop_order FOR EACH ROW WHEN (OLD.state <> NEW.state) "
        "EXECUTE FUNCTION move()",
    ],
    "mysql": [
        "CREATE TABLE move (pk bigint, source varchar(100), target varchar(100), version bigint, at double)",
        "CREATE TRIGGER move AFTER UPDATE ON shop_order FOR EACH ROW IF OLD.state <> NEW.state THEN INSERT INTO move "
        "VALUES (NEW.id, OLD.state, NEW.state, NEW.state_version, unix_timestamp(sysdate(6))); END IF",
    ],
}
CLOCKS = {
    "sqlite": "86400 * julianday('now')",
    "postgresql": "extract(epoch FROM clock_timestamp())::float8",
    "mysql": "CAST(unix_timestamp(sysdate(6)) AS double)",
}
# Not due for long; a new worker that meets one before the migration does renames it, too.
IDLE = (
    "INSERT INTO shop_order (state, state_ready, state_next_attempt) WITH RECURSIVE numbers(n) AS "
    "(SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows}) "
    "SELECT CASE WHEN mod(n, 4) = 0 THEN 'parked' ELSE 'packed' END, {ready}, '2100-01-01' FROM numbers"
)


def release(folder, database, models):
    """One version of the code, on that database."""
    project = Project(folder, database)
    project.begin("shop", further=FURTHER)
    project.write("shop/models.py", models)
    return project


@contextmanager
def worker(project):
    """A worker of that version that is at work."""
    path = f"{project.folder}:{settings.BASE_DIR}"
    # One that is left behind by a test run that was killed ends by itself.
    options = ("--run-for", "900")
    with WorkerProcess(*options, PYTHONPATH=path, DJANGO_SETTINGS_MODULE="settings") as process:
        live = "SELECT 1 FROM stator_worker WHERE pid = ? AND stopped IS NULL"
        wait_until(lambda: project.execute(live, process.pid), message=process.output)
        yield process
        assert process.stop() == 0, process.output()


@contextmanager
def orders(project):
    """A program places ten orders every 20 ms; gives a list of the seconds that each of these statements took."""
    ended, placed = threading.Event(), []

    def place():
        while not ended.wait(0.02):
            began = monotonic()
            project.execute(f"INSERT INTO shop_order (state) VALUES {', '.join(['(?)'] * 10)}", *["placed"] * 10)
            placed.append(monotonic() - began)

    thread = threading.Thread(target=place)
    thread.start()
    try:
        yield placed
    finally:
        ended.set()
        thread.join()


def states_of(project):
    return dict(project.execute("SELECT state, count(*) FROM shop_order GROUP BY state"))


def longest_stall(project, began, ended):
    """The longest time within these moments in which no worker moved an object."""
    by_workers = "(source = 'placed' OR source <> 'parked' AND target = 'sent')"
    moved = project.execute(f"SELECT at FROM move WHERE at BETWEEN ? AND ? AND {by_workers}", began, ended)
    moments = sorted([began, ended, *(at for (at,) in moved)])
    return max(after - before for before, after in zip(moments, moments[1:], strict=False))


def now(project):
    return project.execute(f"SELECT {CLOCKS[connection.vendor]}")[0][0]


def test_states_are_renamed_and_removed_while_both_versions_run(tmp_path):
    with temporary_project(tmp_path / "old") as first, ExitStack() as running:
        old = release(tmp_path / "old", first.database, OLD)
        old.manage("makemigrations", "shop")
        old.manage("migrate")
        for statement in MOVES[connection.vendor]:
            old.execute(statement)
        old.execute(IDLE.format(rows=ROWS, ready="0" if old.is_sqlite else "false"))
        new = release(tmp_path / "new", first.database, NEW)
        new.write("shop/migrations/0001_initial.py", old.read("shop/migrations/0001_initial.py"))
        new.manage("makemigrations", "shop", "-n", "states")

        old_worker = running.enter_context(ExitStack())
        old_worker.enter_context(worker(old))
        with orders(old) as placed:
            wait_until(lambda: states_of(old).get("sent"))
            # Refused: a state would vanish with its rows. Nothing was changed, and the old version goes on.
            refused = new.manage("migrate", "shop", code=1)
            assert "rows of shop.Order are in the state 'parked'" in refused
            assert not old.execute("SELECT 1 FROM move WHERE source = 'parked' OR target = 'checked'")

            path = "shop/migrations/0002_states.py"
            new.write(path, new.read(path).replace("None", "'sent'"))
            began = now(new)
            interrupted(new)
            left = sum(states_of(new).get(state, 0) for state in ("parked", "packed"))
            running.enter_context(worker(new))
            new.manage("migrate", "shop")
            ended = now(new)
            seen = len(placed)
            wait_until(lambda: len(placed) > seen + 10)
            old_worker.close()
            seen = len(placed)
            wait_until(lambda: len(placed) > seen + 10)
        wait_until(lambda: {*states_of(new)} <= {"checked", "sent"}, message=lambda: str(states_of(new)))
        assert sum(states_of(new).values()) == ROWS + 10 * len(placed)
        stall = longest_stall(new, began, ended)
        print(
            f"{ROWS:,} rows moved in {ended - began:.1f} s, {left:,} of them after migrate was killed; "
            f"workers moved nothing for {stall:.1f} s at most, an insert took {max(placed):.1f} s at most"
        )
        everything_moved_as_declared(new)
        assert stall < STALL + CROWDED


def interrupted(project):
    """Begin to migrate, and kill it when it has moved rows."""
    path = f"{project.folder}:{settings.BASE_DIR}"
    options = ("shop", "--no-color")
    with WorkerProcess(*options, command="migrate", PYTHONPATH=path, DJANGO_SETTINGS_MODULE="settings") as process:
        moved = "SELECT 1 FROM move WHERE source = 'parked' LIMIT 1"
        wait_until(lambda: project.execute(moved), message=process.output)


def everything_moved_as_declared(project):
    counted = {
        (source, target): count
        for source, target, count in project.execute("SELECT source, target, count(*) FROM move GROUP BY 1, 2")
    }
    assert {*counted} - BY_WORKERS - {RENAMED, REMAPPED} == set()
    assert (counted[REMAPPED], counted[RENAMED] >= ROWS - ROWS // 4) == (ROWS // 4, True)
    # Versions without gaps: each move was the next one of its row.
    assert project.execute("SELECT pk, version FROM move GROUP BY pk, version HAVING count(*) > 1") == []
    wrong = """
        SELECT id FROM shop_order
        LEFT JOIN (SELECT pk, count(*) AS moves, max(version) AS latest FROM move GROUP BY pk) AS moved ON pk = id
        WHERE state_version <> moves OR state_version <> latest OR state_claim IS NOT NULL
    """
    assert project.execute(wrong) == []
    assert project.execute("SELECT count(*) FROM shop_order WHERE state_failures > 0 OR state_crashes > 0") == [(0,)]
