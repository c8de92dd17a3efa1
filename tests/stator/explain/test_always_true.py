"""Nothing that stands still is green: what status, doctor and the overview say of generated sites."""

import os
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import transaction
from django.test import RequestFactory
from django.utils import timezone
from hypothesis import HealthCheck, Phase, given, seed, settings

from stator.admin.access import Pages
from stator.extensions.overview.panels import show
from stator.extensions.problems.commands import status
from stator.extensions.problems.commands.doctor import standing, tables
from stator.rows.problem import OK
from tasks.models import Schedule, Task
from tests.stator.explain.sites import Site, sites
from tests.testapp.explained import Errand

MODELS: list[Any] = [Errand, Task, Schedule]
CHAOS = bool(os.environ.get("CHAOS"))
SEED = int(os.environ.get("SEED") or 1)


def say_that_all_is_well() -> dict[str, bool]:
    """Return for each tool whether it says so of these models."""
    answer = status.run({"labels": [model._meta.label for model in MODELS], "database": None})
    assert ("No problems." in answer.lines) is (answer.data["troubles"] == [])
    usable, complete = tables.usable("default", MODELS)
    # That a model without objects has no worker is a note of its own.
    found = [usable, *(one for one in standing.troubles("default", complete) if one.code != "workers")]
    request = RequestFactory().get("/")
    request.user = User(is_superuser=True, is_active=True, is_staff=True)
    shown = show(MODELS, Pages(admin.site, request), timezone.now(), period="hour")
    return {
        "status": answer.data["troubles"] == [],
        "doctor": all(one.level == OK for one in found),
        "overview": not shown.problems,
    }


@pytest.mark.django_db(transaction=True)
@seed(SEED)
@settings(
    max_examples=3000 if CHAOS else 10, derandomize=not CHAOS, database=None, deadline=None,
    # To shrink a site takes minutes; bin/chaos does.
    phases=[Phase.generate, Phase.shrink][: 1 + CHAOS],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
@given(site=sites())
def test_nothing_that_stands_still_is_green(site: Site) -> None:
    with transaction.atomic():
        site.make()
        said = say_that_all_is_well()
        transaction.set_rollback(True)
    assert len(set(said.values())) == 1, f"{said}\n{site}"
    assert not site.stands or not any(said.values()), f"{site.stands} while {said}\n{site}"
