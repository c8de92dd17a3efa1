"""Cells, as ``docs/how-to/growing.rst`` has them: schemas with the same tables, a router by a key, one worker."""

from pathlib import Path

import pytest

from tests.docs.following import blocks_of
from tests.projects import temporary_project

pytestmark = pytest.mark.postgresql

GROWING = Path(__file__).parents[2] / "docs" / "how-to" / "growing.rst"
CELLS = ("cell_0", "cell_1", "cell_2", "cell_3")

FURTHER = f"""
import os
DATABASES["default"]["OPTIONS"] = {{"options": f"-c search_path={{os.environ.get('SEARCH_PATH', 'public')}}"}}
CELLS = {list(CELLS)!r}
STATOR = {{"SCHEMAS": CELLS}}
"""

MODELS = """
from django.db import models

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class OrderGraph(StateGraph):
    new = State(try_interval=60)
    done = State()
    new.transitions_to(done)

    @classmethod
    def handle_new(cls, order):
        return cls.done


class Order(StatorModel):
    customer = models.IntegerField()
    state = StateField(OrderGraph)
"""

SHOP = """
from shop.cells import in_cell_of
from shop.models import Order

for key in range(40):
    with in_cell_of(key):
        Order.objects.create(customer=key)
"""

FIND = """
from shop.cells import in_cell_of
from shop.models import Order

for key in range(40):
    with in_cell_of(key):
        assert Order.objects.get(customer=key).state == "done", key
"""


def test_one_worker_moves_the_objects_of_all_cells_and_each_key_has_one(tmp_path, monkeypatch):
    with temporary_project(tmp_path) as project:
        project.begin("shop", further=FURTHER)
        project.write("shop/models.py", MODELS)
        [cells] = [block.text for block in blocks_of(GROWING) if block.caption == "shop/cells.py"]
        project.write("shop/cells.py", cells)
        project.manage("makemigrations", "shop")
        for cell in CELLS:
            project.execute(f"CREATE SCHEMA {cell}")
            monkeypatch.setenv("SEARCH_PATH", cell)
            project.manage("migrate")
        monkeypatch.delenv("SEARCH_PATH")
        project.manage("shell", "-c", SHOP)
        filled = {cell: project.execute(f"SELECT count(*) FROM {cell}.shop_order")[0][0] for cell in CELLS}
        assert sum(filled.values()) == 40
        assert all(filled.values())
        project.manage("runstator", "--until-idle")
        project.manage("shell", "-c", FIND)
