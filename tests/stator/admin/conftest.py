"""Logins, and other admins in the place of that of parcels."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.test import Client

from stator.admin import StatorAdmin
from stator.extensions.admin import sections
from tests.stator.admin.requests import own_urls
from tests.testapp.operators import Parcel

Login = Callable[..., Client]
Replace = Callable[[type[StatorAdmin]], None]


@pytest.fixture
def login() -> Login:
    """A client whose user is staff and has the given permissions; enforces CSRF when told to."""

    def log_in(*codenames: str, csrf: bool = False) -> Client:
        user = User.objects.create_user("+".join(codenames) or "staff", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        assert user.user_permissions.count() == len(codenames)
        client = Client(enforce_csrf_checks=csrf)
        client.force_login(user)
        return client

    return log_in


@pytest.fixture
def replace(settings: object) -> Iterator[Replace]:
    """Puts another admin in the place of that of parcels."""
    original = admin.site._registry[Parcel]

    def put(model_admin: type[StatorAdmin]) -> None:
        admin.site._registry[Parcel] = model_admin(Parcel, admin.site)
        settings.ROOT_URLCONF = own_urls()  # type: ignore[attr-defined]

    yield put
    admin.site._registry[Parcel] = original


@pytest.fixture
def viewer(login: Login) -> Client:
    return login("view_overview", "view_parcel")


@pytest.fixture
def operator(login: Login) -> Client:
    return login("view_overview", "view_parcel", "change_parcel")


@pytest.fixture
def own_sections(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Only what the test adds."""
    added: list[Any] = []
    monkeypatch.setattr(sections, "_added", added)
    return added
