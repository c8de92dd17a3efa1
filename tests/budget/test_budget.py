"""An extension of a third party: a budget, by public names alone, in a project of its own with a real worker.

``docs/how-to/extend.rst`` shows it.
"""

import ast
import json
from pathlib import Path

import pytest
from django.db import connection

import stator.extending
import stator.models
from tests.parsing import tree_of
from tests.processes import wait_until
from tests.projects import ADMIN_SETTINGS, Project, temporary_project

PACKAGE = Path(__file__).parent / "budget"
MODULES = sorted(PACKAGE.glob("*.py"))
SHOP = """
from budget.models import Budgeted
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel

class ReportGraph(StateGraph):
    asked = State(try_interval=60)
    written = State()
    asked.transitions_to(written)

    @classmethod
    def handle_asked(cls, report):
        return cls.written

class Report(Budgeted, StatorModel):
    state = StateField(ReportGraph)
"""
SETTINGS = """
INSTALLED_APPS += ["django.contrib.sessions", "django.contrib.messages", "django.contrib.admin"]
ROOT_URLCONF = "urls"
STATOR = {"EXTENSIONS": ["budget"], "POLL_INTERVAL": 0.05, "BATCH_SIZE": 1, "CONCURRENCY": 1}
"""
URLS = """
from django.contrib import admin
from django.urls import path
urlpatterns = [path("admin/", admin.site.urls)]
"""
# What people see while objects are held back.
SURFACES = """
import json
from io import StringIO
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client
from shop.models import Report

def printed(*command):
    out = StringIO()
    try:
        call_command("stator", *command, stdout=out, stderr=out)
    except SystemExit:
        pass
    return out.getvalue()

def page(user):
    client = Client()
    client.force_login(user)
    return client.get("/admin/stator/overview/", headers={"host": "localhost"}).content.decode()

held = Report.objects.filter(tenant="acme", state="asked").first()
chief, clerk = User.objects.create_superuser("chief"), User.objects.create_user("clerk", is_staff=True)
clerk.user_permissions.add(Permission.objects.get(codename="view_report", content_type__app_label="shop"))
print(json.dumps({
    "explain": [(one.code, one.sentence, one.remedy) for one in held.explain()],
    "counts": Report.stator.explain_counts(),
    "status": printed("status"),
    "doctor": printed("doctor"),
    "chief": page(chief),
    "clerk": page(clerk),
}))
"""
# Outcomes of three tenants. One budget is of another month, one object moves nowhere, one claim is lost.
FORMS = """
import json
from django.db import connection
from django.db.models import F, QuerySet
from django.test.utils import CaptureQueriesContext
from budget.models import Budget
from shop.models import Report
from stator.conf import Settings
from stator.db import operations_for, portable
from stator.db.interface import Operations, new_worker_id
from stator.graph.outcomes import Moved, Waiting
from stator.scopes import Scope

graph = Report.state_graph
given = Settings(), new_worker_id()
stores = {
    "vendor": operations_for(Report, *given, "default"),
    "portable": Operations(Report, Scope("default"), *given, portable.parts_of),
}
found = {}
for name, operations in stores.items():
    Report.objects.all().delete()
    Budget.objects.all().delete()
    Budget.objects.create(tenant="acme", limit=100, spent=50, month="2001-01-01")
    Budget.objects.create(tenant="bolt", limit=100)
    for tenant, cost in [("acme", 2), ("acme", 3), ("bolt", 5), ("bolt", 7), ("bolt", 11), ("free", 13)]:
        Report.objects.create(tenant=tenant, cost=cost)
    claims = operations.claim([graph.asked], 100)
    [stays] = [claim for claim in claims if claim.instance.cost == 7]
    [lost] = [claim for claim in claims if claim.instance.cost == 11]
    QuerySet(Report).filter(pk=lost.pk).update(state_claim=None)
    with CaptureQueriesContext(connection) as queries:
        operations.record([(claim, Moved(graph.written)) for claim in claims if claim is not stays])
    operations.record([(stays, Waiting(60.0))])
    found[f"{name} statements"] = sum("budget_budget" in each["sql"] for each in queries)
    found[name] = dict(Budget.objects.values_list("tenant", "spent"))
print(json.dumps(found))
"""


@pytest.fixture
def project(tmp_path):
    with temporary_project(tmp_path) as project:
        project.begin("budget", "shop", further=ADMIN_SETTINGS + SETTINGS)
        for module in MODULES:
            project.write(f"budget/{module.name}", module.read_text())
        project.write("shop/models.py", SHOP)
        project.write("urls.py", URLS)
        project.make_tables("budget", "shop")
        yield project


def test_extension_is_short_and_of_public_names():
    lines = [line for module in MODULES for line in module.read_text().splitlines() if line]
    assert len(lines) <= 100
    public = {"stator.seams": {"Extension"}, "stator.extending": set(stator.extending.__all__)}
    public["stator.models"] = set(stator.models.__all__)
    for module in MODULES:
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.Import):
                assert not any(name.name.startswith("stator") for name in node.names)
            if isinstance(node, ast.ImportFrom) and node.module.startswith("stator"):
                assert {name.name for name in node.names} <= public[node.module]
            if isinstance(node, ast.Attribute) and node.attr.startswith("_"):
                assert node.attr in ("_base_manager", "_meta"), f"{module.name} uses {node.attr}"


def test_tenant_over_its_limit_is_held_back_until_the_limit_is_raised(project):
    ask(project, {"acme": 20, "bolt": 5, "free": 2}, {"acme": 3, "bolt": 100})
    with project.process("runstator"):
        wait_until(lambda: rests(project), message=lambda: str(written(project)))
        held = written(project)
        said = json.loads(project.manage("shell", "-v", "0", "-c", SURFACES))
        assert written(project) == held
        # What the worker claims before the last cent is recorded is attempted.
        assert held == {"acme": held["acme"], "bolt": 5, "free": 2}
        assert 3 <= held["acme"] < 20
        project.execute('UPDATE budget_budget SET "limit" = 100')
        wait_until(lambda: written(project) == {"acme": 20, "bolt": 5, "free": 2})
        wait_until(lambda: spent(project) == {"acme": 20, "bolt": 5})
    sentence = f"eld back: the budget of acme for this month is used up, {held['acme']} of 3 are spent"
    remedy = "Raise the tenant's limit, or wait for the next month."
    assert said["explain"] == [["budget_used_up", f"H{sentence}.", remedy]]
    assert said["counts"] == {"terminal": 7 + held["acme"], "budget_used_up": 20 - held["acme"]}
    assert f"warning  shop.Report: h{sentence}" in said["status"]
    assert f"shop.Report: h{sentence}\n      -> {remedy}" in said["doctor"]
    assert f"h{sentence}" in said["chief"]
    # The section is for those who may see budgets.
    assert f"{held['acme']} of 3" in said["chief"]
    # The section is for those who may see budgets.
    assert ["Budgets of this month" in said[user] for user in ("chief", "clerk")] == [True, False]


def test_one_statement_and_several_charge_the_same_and_only_for_what_is_recorded(project):
    found = json.loads(project.manage("shell", "-v", "0", "-c", FORMS))
    assert found["vendor"] == found["portable"] == {"acme": 5, "bolt": 5}
    # One for each of the three tenants. Django does not see the one statement of PostgreSQL.
    assert found["portable statements"] == 3
    assert found["vendor statements"] == (0 if connection.vendor == "postgresql" else 3)


def ask(project: Project, reports: dict[str, int], limits: dict[str, int]) -> None:
    code = "\n".join(
        [
            "from budget.models import Budget",
            "from shop.models import Report",
            *(f"Budget.objects.create(tenant={tenant!r}, limit={limit})" for tenant, limit in limits.items()),
            *(
                f"for _ in range({count}): Report.objects.create(tenant={tenant!r})\n"
                for tenant, count in reports.items()
            ),
        ]
    )
    project.manage("shell", "-c", code)


def written(project: Project) -> dict[str, int]:
    return dict(project.execute("SELECT tenant, count(*) FROM shop_report WHERE state = 'written' GROUP BY tenant"))


def spent(project: Project) -> dict[str, int]:
    return dict(project.execute("SELECT tenant, spent FROM budget_budget"))


def rests(project: Project) -> bool:
    """Whether the worker has nothing more to do while a budget is used up."""
    [(held,)] = project.execute("SELECT count(*) FROM shop_report WHERE state_claim IS NOT NULL")
    return not held and spent(project)["acme"] >= 3 and written(project).get("free") == 2
