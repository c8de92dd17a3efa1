"""The mixin comes to a table with rows and leaves it again, by the commands that a project would run."""

import os
from time import monotonic

import pytest

from tests.projects import temporary_project

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
ROWS = 200_000 if os.environ.get("CHAOS") else 2000
NUMBERS = (
    "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {rows}) SELECT n FROM numbers"
)


@pytest.fixture
def shop(tmp_path):
    """A project with a table that is in use, of before."""
    with temporary_project(tmp_path) as project:
        project.begin("shop")
        project.write("shop/models.py", PLAIN)
        project.manage("makemigrations", "shop")
        project.manage("migrate")
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

    shop.write("shop/models.py", PLAIN)
    shop.manage("makemigrations")
    migrate(shop)
    assert (shop.indexes("shop_order"), shop.columns("shop_order")) == ([], ["id", "number"])
    assert shop.execute("SELECT count(*) FROM shop_order") == [(ROWS,)]
    assert permissions(shop) == []


def test_checks_pass_over_a_table_that_has_only_some_columns(shop):
    """As one that several migrations give them."""
    shop.manage("migrate")
    shop.execute("ALTER TABLE shop_order RENAME COLUMN state_crashes TO not_yet")
    shop.execute("UPDATE shop_order SET state = 'unknown'")
    assert "unknown" not in shop.manage("check", "--database", "default")
    shop.execute("ALTER TABLE shop_order RENAME COLUMN not_yet TO state_crashes")
    assert "does not have: 'unknown'" in shop.manage("check", "--database", "default")


def migrate(shop, *target):
    began = monotonic()
    shop.manage("migrate", *target)
    print(f"{ROWS:,} rows: migrate {' '.join(target)} took {monotonic() - began:.1f} s")


def permissions(shop):
    return shop.execute("SELECT codename FROM auth_permission WHERE codename = ?", "force_order")


def states(shop):
    return shop.execute("SELECT state, count(*) FROM shop_order GROUP BY state")
