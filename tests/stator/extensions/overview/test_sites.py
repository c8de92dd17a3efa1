"""The number of problems beside the link to the overview."""

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import RequestFactory

from stator.admin_site import sites as admin_site
from stator.extensions.events.admin import inbox
from stator.extensions.overview.admin import OverviewAdmin
from stator.models import Overview, Pause
from tests.stator.making import put
from tests.testapp.approvals import Expense, ExpenseGraph

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def site(monkeypatch):
    monkeypatch.setattr(admin_site, "_problems", admin_site._Problems())
    made = admin_site.StatorAdminSite()
    made._registry = admin.site._registry
    return made


@pytest.fixture
def names(site):
    """Return the name of the overview in the list of apps of a user with these permissions."""

    def of(*codenames):
        user = User.objects.create_user(f"ada{User.objects.count()}", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        request = RequestFactory().get("/")
        request.user = user
        return [str(model["name"]) for app in site.get_app_list(request) for model in app["models"]
                if model["model"] is Overview]  # fmt: skip

    return of


def test_number_of_problems_is_beside_the_link(names):
    Pause.objects.create(model_label="testapp.parcel", reason="the disk is full")
    assert names("view_overview") == ["Overview (1 problem)"]


def test_user_without_the_permission_has_no_link_and_nothing_is_counted(names, monkeypatch):
    monkeypatch.setattr(admin_site, "surveys", lambda models, **options: pytest.fail("counted for nobody"))
    assert names("view_pause") == []


def test_overview_finds_the_problems_once_for_its_lines_and_the_number(site, monkeypatch):
    Pause.objects.create(model_label="testapp.parcel", reason="the disk is full")
    monkeypatch.setattr(admin_site, "surveys", lambda models: pytest.fail("counted once more"))
    request = RequestFactory().get("/admin/stator/overview/")
    request.user = User.objects.create_superuser("root")
    page = OverviewAdmin(Overview, site).changelist_view(request)
    names = [str(model["name"]) for app in page.context_data["available_apps"] for model in app["models"]]
    assert "Overview (1 problem)" in names


def test_number_is_counted_once_in_some_seconds(names, monkeypatch):
    counted = []
    monkeypatch.setattr(admin_site, "surveys", lambda models, **options: counted.append(1) or [])
    monkeypatch.setattr(admin_site, "problems", lambda found: [1, 2])
    assert [names("view_overview") for _ in range(3)] == [["Overview (2 problems)"]] * 3
    assert counted == [1]
    monkeypatch.setattr(admin_site._problems, "_until", 0.0)
    monkeypatch.setattr(admin_site, "problems", lambda found: [])
    assert names("view_overview") == ["Overview"]
    assert counted == [1, 1]


@pytest.fixture
def link(site, monkeypatch):
    """Return the name of the link to what waits for a user with these permissions, if there is one."""
    monkeypatch.setattr(inbox, "counts", inbox.InboxCounts())

    def of(name, *codenames):
        user, _ = User.objects.get_or_create(username=name, is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        request = RequestFactory().get("/")
        request.user = User.objects.get(pk=user.pk)
        return [str(model["name"]) for app in site.get_app_list(request) for model in app["models"]
                if model["object_name"] == "Waiting"]  # fmt: skip

    return of


def test_link_to_the_inbox_says_how_many_objects_wait_for_the_user_now(link):
    both, mine = put(Expense), put(Expense, submitter="anna")
    may = ("view_expense", "change_expense")
    assert (link("ben", *may), link("lena", "view_expense")) == (["Waiting for you (2)"], [])
    for each in (both, mine):
        each.stator.send("reject")
    assert link("cleo", *may) == ["Waiting for you"]
    # Counted once in some seconds.
    assert link("ben", *may) == ["Waiting for you (2)"]
    inbox.counts.forget()
    assert link("ben", *may) == ["Waiting for you"]


def test_object_that_waits_for_others_is_not_counted(link, monkeypatch):
    monkeypatch.setattr(ExpenseGraph.submitted.events["reject"], "unless", lambda expense, by: True)
    may, expense = ("view_expense", "change_expense"), put(Expense)
    assert link("ben", *may) == ["Waiting for you (1)"]
    expense.stator.send("approve", {"note": "ok"}, by=User.objects.get(username="ben"))
    inbox.counts.forget()
    assert link("ben", *may) == ["Waiting for you"]


def test_page_of_the_app_has_the_link_for_users_without_other_models_of_it(link, site):
    put(Expense)
    link("ben", "view_expense", "change_expense")
    request = RequestFactory().get("/")
    request.user = User.objects.get(username="ben")
    [app] = site.get_app_list(request, "stator")
    assert app["models"][0]["admin_url"] == "/admin/stator/event/waiting/"
    text = site.index(request).render().content.decode()
    assert '<a href="/admin/stator/event/waiting/">Waiting for you (1)</a>' in text


def test_number_of_one_schema_is_not_shown_in_another(link, monkeypatch):
    put(Expense)
    monkeypatch.setattr(inbox, "works_in_schemas", lambda: True, raising=False)
    assert link("ben", "view_expense", "change_expense") == ["Waiting for you"]
