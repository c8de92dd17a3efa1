"""Pages of the admin in themes: the panel of an object is there, outside of the form, and its picture can be read.

Each theme is tried where its package is installed.
"""

import os
from typing import Any

import httpx
import pytest
from django.template import engines
from django.test import override_settings

from tests.processes import wait_until
from tests.projects import ADMIN_SETTINGS, Project, temporary_project
from tests.servers.user import free_port

SETTINGS = """
ROOT_URLCONF = "urls"
ALLOWED_HOSTS, STATIC_URL, DEBUG = ["*"], "/static/", True
INSTALLED_APPS = [
    THEME, *INSTALLED_APPS, "django.contrib.sessions", "django.contrib.messages", "django.contrib.staticfiles",
    "django.contrib.admin",
]
"""

URLS = """
from django.conf import settings
from django.contrib import admin
from django.urls import include, path

own = [path("grappelli/", include("grappelli.urls"))] if settings.THEME == "grappelli" else []
urlpatterns = [*own, path("admin/", admin.site.urls)]
"""

MODELS = """
from django.db import models

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class InvoiceGraph(StateGraph):
    unpaid = State(externally_progressed=True)
    paid = State()
    unpaid.transitions_to(paid)


class Invoice(StatorModel):
    state = StateField(InvoiceGraph)
    name = models.CharField(max_length=50)
"""

ADMIN = """
from django.conf import settings
from django.contrib import admin
from django.utils.module_loading import import_string

from shop.models import Invoice
from stator.admin import StatorAdmin

base = import_string("unfold.admin.ModelAdmin" if settings.THEME == "unfold" else "django.contrib.admin.ModelAdmin")
admin.site.register(Invoice, type("InvoiceAdmin", (StatorAdmin, base), {}))
"""

FILL = """
from django.contrib.auth.models import User
from shop.models import Invoice
User.objects.create_superuser("ada", password="x")
Invoice.objects.create(name="first")
"""

# For each box of the picture, whether its text has another colour than what is behind it.
READABLE = """
const box = one => one.querySelector("rect"), words = one => one.querySelector("text");
return [...document.querySelectorAll(".stator-box")].map(
    one => getComputedStyle(box(one)).fill !== getComputedStyle(words(one)).fill);
"""

# What a theme may leave of Django's page.
BARE = '<html><body>{% block content %}<form id="form">{% csrf_token %}</form>{% endblock %}</body></html>'


def test_panel_needs_one_block_of_a_theme() -> None:
    bare = {"admin/change_form.html": BARE}
    loaders = [
        ("django.template.loaders.locmem.Loader", bare),
        ("django.template.loaders.locmem.Loader", {"panel.html": "the panel"}),
        "django.template.loaders.app_directories.Loader",
    ]
    templates = {"BACKEND": "django.template.backends.django.DjangoTemplates", "OPTIONS": {"loaders": loaders}}
    with override_settings(TEMPLATES=[templates]):
        page = engines["django"].get_template("stator/admin/change_form.html")
        shown = page.render({"original": object(), "stator_live": "panel.html"})
    assert "the panel" in shown
    assert shown.index("the panel") < shown.index("<form")


@pytest.mark.parametrize("theme", ["unfold", "jazzmin", "grappelli"])
def test_object_is_shown_in_a_theme(theme: str, window: Any, tmp_path: Any) -> None:
    pytest.importorskip(theme)
    with temporary_project(tmp_path) as project:
        project.begin("shop", further=f"THEME = {theme!r}\n{SETTINGS}{ADMIN_SETTINGS}")
        for name, text in (("urls.py", URLS), ("shop/models.py", MODELS), ("shop/admin.py", ADMIN)):
            project.write(name, text)
        project.make_tables("shop")
        project.manage("shell", "-c", FILL)
        look(project, window)


def look(project: Project, window: Any) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    with project.process("runserver", "--noreload", address.removeprefix("http://")):
        wait_until(lambda: answers(address))
        window.get(f"{address}/admin/")
        window.find_element("name", "username").send_keys("ada")
        window.find_element("name", "password").send_keys("x")
        window.find_element("css selector", "form [type=submit]").click()
        # A click returns before the form is sent.
        wait_until(lambda: "/login/" not in window.current_url)
        window.get(f"{address}/admin/shop/invoice/1/change/")
        assert len(window.find_elements("css selector", ".stator-live")) == 1
        assert window.find_elements("css selector", "form form, form .stator-live") == []
        assert window.execute_script(READABLE) == [True, True]
        button = window.find_element("css selector", ".stator-acts button.button").size
        assert button["width"] > 40, button
        assert button["height"] > 20, button
        if folder := os.environ.get("SCREENSHOTS"):
            window.save_screenshot(f"{folder}/{project.folder.name}.png")
        window.get(f"{address}/admin/stator/overview/")
        assert "shop.Invoice" in window.find_element("css selector", "#stator-live").text
        window.get("about:blank")


def answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/admin/login/").status_code == 200
    except httpx.TransportError:
        return False
