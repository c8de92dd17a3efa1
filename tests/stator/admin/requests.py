"""Clients, and the requests that operators make in the admin."""

import re
from html import unescape
from typing import Any

from django.contrib import admin
from django.db import models
from django.test import Client
from django.urls import path

from stator.conf import load_settings
from stator.db import operations_for
from stator.db.interface import Claim, new_worker_id

LIST = "/admin/testapp/parcel/"
MOVE = {"action": "stator_move", "index": "0", "stator_confirmed": "1", "state": "delivered", "reason": "because"}


def page_of(row: models.Model) -> str:
    return f"{LIST}{row.pk}/change/"


def claim(model: Any) -> Claim:
    """Claim one ready row, as a worker does."""
    operations = operations_for(model, load_settings(), new_worker_id())
    [claim] = operations.claim(list(model.state_graph.automatic_states), 1)
    return claim


def set_columns(row: models.Model, **columns: Any) -> None:
    """Write columns that only the framework writes."""
    operations_for(type(row), load_settings(), new_worker_id()).rows.filter(pk=row.pk).update(**columns)


def act(client: Client, name: str, *rows: models.Model, url: str = LIST, **data: str) -> Any:
    """Ask for an act on rows."""
    return client.post(url, {"action": name, "index": "0", "_selected_action": [row.pk for row in rows], **data})


def move(client: Client, *rows: models.Model, url: str = LIST, **data: str) -> Any:
    """Ask for a move and confirm it."""
    return confirm(client, url, {**MOVE, "_selected_action": [row.pk for row in rows], **data})


def confirm(client: Client, url: str, data: dict[str, Any]) -> Any:
    """Ask for an act, and confirm what the page shows; without a page, return what there is instead."""
    asked = client.post(url, {name: value for name, value in data.items() if name != "stator_confirmed"})
    if asked.status_code != 200:
        return asked
    return client.post(url, {**data, "stator_confirmed": "1", "stator_seen": seen_in(asked)})


def seen_in(asked: Any) -> str:
    """The hidden field of a confirmation page that says which rows it showed."""
    [text] = re.findall(r'name="stator_seen" value="([^"]*)"', asked.content.decode())
    return unescape(text)


def own_urls() -> Any:
    """URLs that are made now, from what is registered now."""
    return type("urls", (), {"urlpatterns": [path("admin/", admin.site.urls)]})


def live(client: Client, row: Any, url: str = LIST) -> str:
    response = client.get(f"{url}{row.pk}/stator/")
    assert response.status_code == 200
    assert "no-store" in response["Cache-Control"]
    return str(response.content.decode())


def part(text: str, name: str) -> str:
    """One part of the page."""
    _, rest = text.split(f'data-stator-part="{name}"')
    return rest.split("data-stator-part=")[0]
