"""One schema of PostgreSQL for each tenant: workers, handlers and commands work in the right one."""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connections, transaction

from stator.conf import load_settings
from stator.db import operations_for
from stator.db.session import send
from stator.extensions.schemas.looks import MAX_REST, rests
from stator.extensions.schemas.paths import is_prepared_by_backend
from stator.schemas import current_schema, in_schema
from tests.docs.following import blocks_of
from tests.processes import events, wait_until
from tests.projects import temporary_project
from tests.stator.making import LEASED, ago, change, operations_of, put
from tests.stator.parcels import MODELS, judge
from tests.testapp.basic import Step

pytestmark = pytest.mark.postgresql

FURTHER = """
import json, os
INSTALLED_APPS += ["tasks"]
CELLS = ["acme", "bolt"]
DATABASES["default"]["OPTIONS"] = {"options": f"-c search_path={os.environ.get('SEARCH_PATH', 'public')}"}
STATOR = {"SCHEMAS": lambda: os.environ.get("SCHEMAS", "").split()} if "SCHEMAS" in os.environ else {}
if os.path.exists("schemas.txt"):
    STATOR = {"SCHEMAS": lambda: open("schemas.txt").read().split(), "SCHEDULE_INTERVAL": 1.0}
"""

ACTIONS = """
import tasks
from django.db import connection

@tasks.action("where", isolated=True, max_attempts=1)
def where(of):
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        return [*cursor.fetchone(), of]
"""

PUBLISH = """
import os
from tasks.models import Queue
Queue.objects.get_or_create(name="default")[0].publish("where", os.environ["SEARCH_PATH"])
"""

GROWING = Path(__file__).parents[4] / "docs" / "how-to" / "growing.rst"
SCHEMAS = ("acme", "bolt")
EACH = 12


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project with its tables in three schemas; those of one managed model are in "public" alone."""
    with temporary_project(tmp_path_factory.mktemp("site")) as made:
        made.begin("shop", further=FURTHER)
        made.write("shop/models.py", MODELS)
        made.write("shop/tasks.py", ACTIONS)
        made.manage("makemigrations", "shop")
        made.manage("migrate")
        copy_tables(made, "acme")
        made.execute("CREATE SCHEMA bolt")
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("SEARCH_PATH", "bolt")
            made.manage("migrate")
        for schema in SCHEMAS:
            made.execute(f"DROP TABLE {schema}.shop_shared")
        yield made


@pytest.fixture
def parcels(project):
    """The project, with objects that have the same keys in all schemas."""
    for schema in ("public", *SCHEMAS):
        for table in ("shop_note", "shop_parcel", "stator_worker"):
            project.execute(f"TRUNCATE {schema}.{table} RESTART IDENTITY")
        pack(project, schema, EACH)
    return project


def states(project, schema):
    return dict(project.execute(f"SELECT state, count(*) FROM {schema}.shop_parcel GROUP BY state"))


def notes(project, schema):
    return project.execute(f"SELECT text, schema FROM {schema}.shop_note")


def test_one_worker_serves_several_schemas_and_each_handler_is_in_its_own(parcels):
    # Such an object is attempted in a process of its own.
    parcels.execute("UPDATE acme.shop_parcel SET state_crashes = 2 WHERE id = 1")
    printed = parcels.manage("runstator", "--until-idle", "--json-logs", "--schema", "acme", "--schema", "bolt")
    assert states(parcels, "public") == {"packed": EACH}
    assert notes(parcels, "public") == []
    for schema in SCHEMAS:
        assert states(parcels, schema) == {"sent": EACH}
        judge(schema, EACH, notes(parcels, schema))
        [(models,)] = parcels.execute(f"SELECT models::text FROM {schema}.stator_worker")
        assert "shop.parcel" in models
    served = {each["schema"]: set(each["models"]) for each in events(printed, "stator.serving")}
    # "public" has the table of the other model, and is not among the schemas.
    assert served == {name: {"shop.parcel", "tasks.batch", "tasks.schedule", "tasks.task"} for name in SCHEMAS}


def test_isolated_action_runs_in_the_schema_of_its_task(parcels, monkeypatch):
    for schema in ("public", *SCHEMAS):
        monkeypatch.setenv("SEARCH_PATH", schema)
        parcels.manage("shell", "-c", PUBLISH)
    monkeypatch.delenv("SEARCH_PATH")
    parcels.manage("runstator", "tasks.Task", "--until-idle", "--schema", "acme", "--schema", "bolt")
    ended = "SELECT state, result->>0, result->>1 FROM {}.tasks_task"
    for schema in SCHEMAS:
        assert parcels.execute(ended.format(schema)) == [("completed", schema, schema)]
    assert parcels.execute(ended.format("public")) == [("pending", None, None)]


def test_setting_names_the_schemas_and_those_that_lack_tables_are_left_out(parcels, monkeypatch):
    parcels.execute("CREATE SCHEMA IF NOT EXISTS empty")
    monkeypatch.setenv("SCHEMAS", "bolt empty")
    printed = parcels.manage("runstator", "--until-idle", "--json-logs")
    assert states(parcels, "bolt") == {"sent": EACH}
    assert states(parcels, "acme") == states(parcels, "public") == {"packed": EACH}
    [left_out] = events(printed, "stator.schema_left_out")
    assert left_out["why"] == "schema 'empty' of database 'default' has no table of a managed model"


def test_schema_without_tables_of_the_framework_is_refused(parcels):
    parcels.execute("CREATE SCHEMA IF NOT EXISTS half")
    parcels.execute("CREATE TABLE half.shop_parcel (LIKE public.shop_parcel INCLUDING ALL)")
    refused = parcels.manage("runstator", "--until-idle", "--schema", "half", code=75)
    assert "schema 'half' of database 'default' lacks the table stator_" in refused
    assert "the app stator belongs to the apps of each schema" in refused


def test_commands_work_in_a_schema(parcels):
    asked = json.loads(
        parcels.manage("stator", "move", "shop.Parcel", "sent", "1", "--reason", "lost", "--schema", "acme", "--json")
    )
    assert asked["moved"] == 1
    assert states(parcels, "acme") == {"packed": EACH - 1, "sent": 1}
    assert states(parcels, "public") == states(parcels, "bolt") == {"packed": EACH}
    assert "terminal" in parcels.manage("stator", "explain", "shop.Parcel", "1", "--schema", "acme", "--json")
    # An index of the same name in another schema does not count.
    own = "SELECT indexname FROM pg_indexes WHERE schemaname = 'bolt' AND tablename = 'shop_parcel'"
    index = next(name for (name,) in parcels.execute(own) if name.startswith("st_ready"))
    parcels.execute(f"DROP INDEX bolt.{index}")
    assert index in parcels.manage("stator", "doctor", "--schema", "bolt", code=1)
    unknown = parcels.manage("stator", "status", "--schema", "nope", code=2)
    assert "--schema 'nope' is not in database 'default'; create it and run its migrations" in unknown


SHOP = """
from shop.cells import in_cell_of
from shop.models import Parcel
for key in range(10):
    with in_cell_of(key):
        Parcel.objects.create(name=f"{Parcel.objects.first().name} key {key}")
"""
FIND = """
from shop.cells import in_cell_of
from shop.models import Parcel
for key in range(10):
    with in_cell_of(key):
        assert Parcel.objects.get(name__endswith=f"key {key}").state == "sent", key
"""


def test_router_of_the_guide_finds_the_cell_of_a_key(parcels):
    """``shop/cells.py`` of docs/how-to/growing.rst."""
    [cells] = [block.text for block in blocks_of(GROWING) if block.caption == "shop/cells.py"]
    parcels.write("shop/cells.py", cells)
    parcels.manage("shell", "-c", SHOP)
    parcels.manage("runstator", "--until-idle", "--schema", "acme", "--schema", "bolt")
    parcels.manage("shell", "-c", FIND)
    added = [states(parcels, schema)["sent"] - EACH for schema in SCHEMAS]
    assert sum(added) == 10
    assert all(added)


MANY = [f"many{number}" for number in range(8)]


def copy_tables(project, *schemas):
    tables = project.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    for schema in schemas:
        copies = [f"CREATE TABLE {schema}.{table} (LIKE public.{table} INCLUDING ALL)" for (table,) in tables]
        # At once, for each call is a session of its own.
        project.execute("; ".join([f"CREATE SCHEMA {schema}", *copies]))


def pack(project, schema, count=1):
    values = ", ".join(f"('{schema} {number}', 'packed', true)" for number in range(count))
    project.execute(f"INSERT INTO {schema}.shop_parcel (name, state, state_ready) VALUES {values}")


METRICS = """
from prometheus_client import generate_latest
from stator.metrics import SiteMetrics
print(generate_latest(SiteMetrics()).decode())
"""


@pytest.fixture(scope="module")
def many_made(project):
    copy_tables(project, *MANY)
    project.write("schemas.txt", " ".join(MANY))
    yield project
    (project.folder / "schemas.txt").unlink()
    for schema in (*MANY, "latecomer"):
        project.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


class TestMany:
    """More schemas than a worker polls all the time: those that have nothing to do rest."""

    @pytest.fixture
    def many(self, many_made):
        tables = [f"{schema}.{table}" for schema in MANY for table in ("shop_note", "shop_parcel", "stator_worker")]
        many_made.execute(f"TRUNCATE {', '.join(tables)} RESTART IDENTITY")
        return many_made

    @contextmanager
    def worker(self, project):
        with project.process("runstator", "--json-logs") as running:
            wait_until(lambda: self.live(project, MANY[0]))
            yield running
            assert running.poll() is None

    def live(self, project, schema):
        alive = "stopped IS NULL AND heartbeat > now() - interval '30 s'"
        return project.execute(f"SELECT models::text FROM {schema}.stator_worker WHERE {alive}")

    def test_all_that_is_ready_is_done_before_a_worker_is_idle(self, many):
        pack(many, MANY[2], EACH)
        pack(many, MANY[7], EACH)
        printed = many.manage("runstator", "--until-idle", "--json-logs")
        for schema in (MANY[2], MANY[7]):
            assert states(many, schema) == {"sent": EACH}
            judge(schema, EACH, notes(many, schema))
        assert {each["schema"] for each in events(printed, "stator.serving")} == set(MANY)
        # The row of the worker is in the others too.
        [(models,)] = many.execute(f"SELECT models::text FROM {MANY[0]}.stator_worker")
        assert "shop.parcel" in models

    def test_status_and_metrics_have_all_schemas_in_sum_and_those_that_say_something(self, many):
        pack(many, MANY[2], 3)
        pack(many, MANY[4], 2)
        shown = json.loads(many.manage("stator", "status", "shop.Parcel", "--json"))
        [total] = shown["sum"]
        assert (total["model"], total["ready"], shown["quiet"]) == ("shop.Parcel", 5, len(MANY) - 2)
        assert [(each["schema"], each["ready"]) for each in shown["schemas"]] == [(MANY[2], 3), (MANY[4], 2)]
        assert shown["without_worker"] == MANY
        metrics = many.manage("shell", "-c", METRICS)
        assert 'stator_ready{model="shop.parcel"} 5.0' in metrics
        assert f'stator_schema_ready{{model="shop.parcel",schema="{MANY[2]}"}} 3.0' in metrics
        assert f'schema="{MANY[0]}"' not in metrics
        assert f'stator_schemas_without_worker{{database="default"}} {len(MANY)}.0' in metrics

    def test_what_any_program_writes_into_a_resting_or_a_new_schema_is_found_and_one_that_goes_stops_nothing(
        self, many
    ):
        with self.worker(many):
            pack(many, MANY[5])
            wait_until(lambda: states(many, MANY[5]) == {"sent": 1}, timeout=60)
            # It rests and is found again.
            due = "now() + interval '6 s'"
            values = f"('{MANY[5]} 1', 'packed', false, {due})"
            columns = "(name, state, state_ready, state_next_attempt)"
            many.execute(f"INSERT INTO {MANY[5]}.shop_parcel {columns} VALUES {values}")
            copy_tables(many, "latecomer")
            pack(many, "latecomer")
            many.write("schemas.txt", " ".join([*MANY, "latecomer"]))
            wait_until(lambda: states(many, "latecomer") == {"sent": 1}, timeout=60)
            many.write("schemas.txt", " ".join(MANY))
            many.execute("DROP SCHEMA latecomer CASCADE")
            pack(many, MANY[1])
            wait_until(lambda: states(many, MANY[1]) == {"sent": 1}, timeout=60)
            wait_until(lambda: states(many, MANY[5]) == {"sent": 2}, timeout=60)


@pytest.mark.django_db(transaction=True)
class TestRests:
    """How long the models of a schema can be left alone; here of the schema that the tests are in anyway."""

    def rest(self):
        # Of the first one, which has no such table, it knows nothing.
        return rests([operations_of(Step)], ["nowhere", "public"])["public"]

    def test_without_rows_it_is_the_longest_time(self):
        assert self.rest() == MAX_REST

    @pytest.mark.parametrize(
        "columns",
        [
            {"state": "new", "state_ready": True},
            {"state": "new", **LEASED},
            {"state": "new", "state_ready": False, "state_next_attempt": ago(1)},
            {"state": "done", "state_ready": False, "state_changed": ago(86400 - MAX_REST + 10)},
        ],
    )
    def test_rows_to_attempt_or_to_watch_leave_none(self, columns):
        put(Step, **columns)
        assert self.rest() == 0

    def test_row_with_the_former_name_of_a_state_leaves_none(self):
        change(put(Step, state="done"), state="older")
        assert self.rest() == 0

    def test_row_that_comes_due_limits_it_unless_it_is_far_from_due(self):
        put(Step, state="new", state_ready=False, state_next_attempt=ago(-3600))
        assert self.rest() == MAX_REST
        put(Step, state="new", state_ready=False, state_next_attempt=ago(-60))
        assert 50 < self.rest() <= 60


def path():
    with connections["default"].cursor() as cursor:
        cursor.execute("SHOW search_path")
        return cursor.fetchone()[0]


@pytest.mark.django_db(transaction=True)
class TestPaths:
    def test_path_is_set_for_the_block_and_as_before_afterwards(self):
        usual = path()
        with in_schema("acme"):
            assert (path(), current_schema()) == (f'"acme", {usual}', "acme")
            with in_schema('bo"lt'):
                assert path() == f'"bo""lt", {usual}'
            assert path() == f'"acme", {usual}'
        assert (path(), current_schema()) == (usual, "")

    def test_rollback_does_not_change_the_path(self):
        usual = path()
        with in_schema("acme"):
            with pytest.raises(LookupError), transaction.atomic():
                assert path() == f'"acme", {usual}'
                raise LookupError
            assert path() == f'"acme", {usual}'
            with transaction.atomic():
                with pytest.raises(LookupError), transaction.atomic(), in_schema("bolt"):
                    assert path() == f'"bolt", {usual}'
                    raise LookupError
                assert path() == f'"acme", {usual}'
        assert path() == usual

    def test_connection_that_is_opened_again_and_own_statements_are_in_the_schema(self):
        with in_schema("acme"):
            connections["default"].close()
            assert path().startswith('"acme"')
            connections["default"].close()
            [(found,)] = send(connections["default"], "SHOW search_path", [])
        assert found.startswith('"acme"')

    def test_own_statements_are_where_the_backend_sets_the_path_at_each_cursor(self):
        """As the backends of django-tenants and django-pgschemas do it."""
        connection = connections["default"]
        kind = type(connection)

        def _cursor(self, name=None):
            cursor = super(kind, self)._cursor(name)
            if name is None:
                cursor.execute("SET search_path = bolt")
            return cursor

        vars(connection).pop("_cursor", None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kind, "_cursor", _cursor, raising=False)
            assert is_prepared_by_backend(connection)
            operations = operations_for(Step, load_settings(), "0" * 12)
            [(found,)] = operations.fetch("SHOW search_path", [])
            # With its session, which has the path.
            connection.close()
        vars(connection).pop("_cursor", None)
        assert found == "bolt"
