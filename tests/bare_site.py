"""A site with both apps, and the commands of its first day: ``python bare_site.py EXTRA`` in an empty folder.

It imports nothing of the suite, so it runs where only the wheel is installed.
"""

import sys
from importlib import import_module
from importlib.util import find_spec

import django
from django.conf import settings
from django.contrib import admin
from django.core.management import call_command
from django.urls import include, path

EXTRA = sys.argv[1] if len(sys.argv) > 1 else ""
# Django 6 has the framework of tasks itself.
HAS_TASKS = EXTRA == "backend" or django.VERSION >= (6, 0)

urlpatterns = []


def configure() -> None:
    apps = ["admin", "auth", "contenttypes", "messages", "sessions"]
    middleware = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ]
    processors = [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]
    templates = {"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}
    options = {"transaction_mode": "IMMEDIATE", "timeout": 30, "init_command": "PRAGMA journal_mode=WAL"}
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.sqlite3", "OPTIONS": options}},
        INSTALLED_APPS=[*(f"django.contrib.{app}" for app in apps), "stator", "tasks"],
        MIDDLEWARE=middleware,
        TEMPLATES=[{**templates, "OPTIONS": {"context_processors": processors}}],
        ROOT_URLCONF="__main__",
        SECRET_KEY="only for this run",
        ALLOWED_HOSTS=["testserver"],
        STATIC_URL="/static/",
        USE_TZ=True,
        STATOR={"TRACING": EXTRA == "tracing"},
        **({"TASKS": {"default": {"BACKEND": "tasks.backend.StatorBackend"}}} if HAS_TASKS else {}),
    )
    django.setup()
    urlpatterns.append(path("admin/", admin.site.urls))
    if EXTRA == "api":
        urlpatterns.append(path("api/", include("tasks.api.urls")))


def show_the_admin() -> None:
    from django.contrib.auth.models import User
    from django.test import Client

    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    pages = ["/admin/", "/admin/tasks/task/", "/admin/tasks/queue/", "/admin/stator/overview/"]
    for page in [*pages, *(["/api/docs"] if EXTRA == "api" else [])]:
        assert client.get(page, follow=True).status_code == 200, page


def work() -> None:
    from stator.models import StatorModel
    from tasks import action
    from tasks.models import Queue, Task

    done = []
    action("resize", queue="encode")(lambda image: done.append(image))
    published = Queue.objects.create(name="encode").publish("resize", {"image": 7}).task
    call_command("runstator", until_idle=True)
    assert done == [7]
    assert Task.objects.get(pk=published.pk).state == "completed"
    assert Task in StatorModel.subclasses
    call_command("stator", "status")
    call_command("stator", "doctor")


def use_the_extra() -> None:
    """Use what the extra is for, as far as no server is needed."""
    wanted = {"postgresql": "psycopg", "mysql": "MySQLdb", "tracing": "opentelemetry.trace", "testing": "hypothesis"}
    if EXTRA in wanted:
        assert find_spec(wanted[EXTRA])
    if EXTRA == "testing":
        import_module("stator.testing_graph")
    if HAS_TASKS:
        framework = import_module("django.tasks" if django.VERSION >= (6, 0) else "django_tasks")
        assert type(framework.task_backends["default"]).__name__ == "StatorBackend"


if __name__ == "__main__":
    configure()
    call_command("check", fail_level="WARNING")
    # What the other extras bring, the site only loads.
    if EXTRA in ("", "api", "backend", "tracing"):
        call_command("migrate", verbosity=0)
        show_the_admin()
        work()
    use_the_extra()
