"""The mixin comes to a table with rows and leaves it again, by the commands that a project would run."""

from time import monotonic

import pytest

from tests.projects import temporary_project
from tests.sizes import size

PLAIN = """
from django.db import models

class Order(models.Model):
    number = models.IntegerField()
"""

MANAGED = """
from django.db import models
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel

class OrderGraph(StateGraph):
    placed = State(try_interval=60)
    packed = State()
    placed.transitions_to(packed)

    @classmethod
    def handle_placed(cls, instance):
        return cls.packed

class Order(StatorModel):
    number = models.IntegerField()
    state = StateField(OrderGraph)
"""

# As many as are promised to take seconds, in a long run.
ROWS = size(200_000, 2000)
NUMBERS = (
    "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows}) SELECT n FROM numbers"
)


@pytest.fixture
def shop(tmp_path):
    """A project with a table that is in use, of before."""
    with temporary_project(tmp_path) as project:
        project.begin("shop")
        project.write("shop/models.py", PLAIN)
        project.make_tables("shop")
        project.execute(f"INSERT INTO shop_order (number) {NUMBERS.format(rows=ROWS)}")
        project.write("shop/models.py", MANAGED)
        project.manage("makemigrations")
        yield project


def test_table_gets_the_mixin_and_loses_it_by_makemigrations_and_migrate(shop):
    migrate(shop)
    assert [name[:5] for name in shop.indexes("shop_order")] == ["st_cr", "st_fa", "st_le", "st_re", "st_re"]
    assert {"state", "state_ready", "state_claim"} < set(shop.columns("shop_order"))
    shop.manage("runstator", "--until-idle")
    assert states(shop) == [("packed", ROWS)]
    assert permissions(shop) == [("force_order",)]

    # Backwards with the code as it is, and forwards again.
    migrate(shop, "shop", "0001")
    assert (shop.indexes("shop_order"), shop.columns("shop_order")) == ([], ["id", "number"])
    migrate(shop, "shop")
    assert states(shop) == [("placed", ROWS)]
    # Checks pass over a table that has only some columns, as one that several migrations give them.
    shop.execute("ALTER TABLE shop_order RENAME COLUMN state_crashes TO not_yet")
    shop.execute("UPDATE shop_order SET state = 'unknown'")
    assert "unknown" not in shop.manage("check", "--database", "default")
    shop.execute("ALTER TABLE shop_order RENAME COLUMN not_yet TO state_crashes")
    assert "does not have: 'unknown'" in shop.manage("check", "--database", "default")

    shop.write("shop/models.py", PLAIN)
    shop.manage("makemigrations")
    migrate(shop)
    assert (shop.indexes("shop_order"), shop.columns("shop_order")) == ([], ["id", "number"])
    assert shop.execute("SELECT count(*) FROM shop_order") == [(ROWS,)]
    assert permissions(shop) == []


INVOICE = """
from django.db import models

class Invoice(models.Model):
    paid_at = models.DateTimeField(null=True)
    labels = models.ManyToManyField("self")
"""
MANAGED_INVOICE = """
from django.db import models
from django.db.models import Q
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel

class InvoiceGraph(StateGraph):
    unpaid = State(try_interval=3600)
    sent = State(delete_after=30 * 86400)
    unpaid.transitions_to(sent)

    @classmethod
    async def handle_unpaid(cls, invoice):
        return None

class Invoice(StatorModel):
    state = StateField(InvoiceGraph, db_default="unpaid")
    {columns}

    class StatorMeta:
        adopts = {{"sent": Q({lookup}=False)}}
"""


@pytest.mark.needs("migrating")
def test_large_table_gets_its_states_from_its_columns_by_makemigrations(tmp_path):
    """Two of three rows are paid; the column says so, and goes after that."""
    with temporary_project(tmp_path) as shop:
        shop.begin("shop")
        shop.write("shop/models.py", INVOICE)
        shop.make_tables("shop")
        paid = f"CASE mod(n, 3) WHEN 1 THEN {days_ago(shop, 10)} WHEN 2 THEN {days_ago(shop, 40)} END"
        shop.execute(f"INSERT INTO shop_invoice (paid_at) SELECT {paid} FROM ({NUMBERS.format(rows=ROWS)}) AS numbers")
        times = shop.execute("SELECT id, paid_at FROM shop_invoice ORDER BY id")
        unpaid = ROWS // 3

        shop.write("shop/models.py", MANAGED_INVOICE.format(columns="", lookup="payed_at__isnull"))
        refusal = shop.manage("makemigrations", "shop", code=1)
        assert "StatorMeta.adopts['sent'] asks for 'payed_at__isnull', but the table has only" in refusal

        # The columns of each kind go in a migration after the one that fills the states.
        shop.write("shop/models.py", MANAGED_INVOICE.format(columns="", lookup="paid_at__isnull"))
        said = shop.manage("makemigrations", "shop", "--name", "state")
        assert "the last of these migrations removes paid_at and labels." in said
        assert "Every row begins in the initial state" not in said
        first, second = (shop.read(f"shop/migrations/{name}.py") for name in ("0002_state", "0003_state"))
        assert (first.count("FillStates("), first.count("RemoveField"), first.count("atomic = False")) == (1, 0, 1)
        assert second.count("RemoveField(") == 2

        migrate(shop, "shop", "0002")
        assert states(shop, "invoice") == [("sent", ROWS - unpaid), ("unpaid", unpaid)]
        assert shop.execute("SELECT state, count(*) FROM shop_invoice WHERE state_ready GROUP BY state") == [
            ("unpaid", unpaid)
        ]
        migrate(shop, "shop", "0001")
        assert shop.execute("SELECT id, paid_at FROM shop_invoice ORDER BY id") == times

        migrate(shop, "shop")
        assert states(shop, "invoice") == [("sent", ROWS - unpaid), ("unpaid", unpaid)]
        assert shop.manage("check", "--database", "default").startswith("System check identified no issues (")
        shop.manage("stator", "preview", "shop.Invoice", "--limit", "200")
        run(shop)
        # Time counts from the migration, so nothing is old enough to be deleted.
        attempted = "SELECT state, state_attempts, count(*) FROM shop_invoice GROUP BY 1, 2 ORDER BY 1"
        assert shop.execute(attempted) == [("sent", 0, ROWS - unpaid), ("unpaid", 1, unpaid)]
        # Without the option nothing is left to migrate.
        shop.write("shop/models.py", MANAGED_INVOICE.partition("    class StatorMeta")[0].format(columns=""))
        shop.manage("makemigrations", "--check", "shop")


def days_ago(shop, days):
    if shop.is_sqlite:
        return f"datetime('now', '-{days} days')"
    return f"now() - interval '{days}' day"


def run(shop):
    began = monotonic()
    shop.manage("runstator", "shop.Invoice", "--until-idle")
    print(f"{ROWS:,} rows: runstator --until-idle took {monotonic() - began:.1f} s")


def migrate(shop, *target):
    began = monotonic()
    shop.manage("migrate", *target)
    print(f"{ROWS:,} rows: migrate {' '.join(target)} took {monotonic() - began:.1f} s")


def permissions(shop):
    return shop.execute("SELECT codename FROM auth_permission WHERE codename = ?", "force_order")


def states(shop, table="order"):
    return shop.execute(f"SELECT state, count(*) FROM shop_{table} GROUP BY state ORDER BY state")
