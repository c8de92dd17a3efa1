"""A worker beside ``runserver``: one for each process that serves, and it ends with that, however that ends."""

import os
import signal
import subprocess
import sys

import pytest
from django.utils.autoreload import DJANGO_AUTORELOAD_ENV

from stator.extensions.processes import beside_runserver
from tests.processes import wait_until
from tests.projects import ORDER, environment, temporary_project
from tests.sizes import PATIENCE

SETTINGS = """
ALLOWED_HOSTS = ["127.0.0.1"]
DEBUG = True
ROOT_URLCONF = "shop.urls"
STATOR = {"RUNSERVER_WORKER": True}
"""


@pytest.mark.django_db(transaction=True)
def test_worker_is_replaced_with_the_server_and_ends_when_that_is_killed(tmp_path):
    with temporary_project(tmp_path) as project:
        project.begin("shop", further=SETTINGS)
        project.write("shop/urls.py", "urlpatterns = []\n")
        project.write("shop/models.py", ORDER)
        project.make_tables("shop")
        log = tmp_path / "log"
        with log.open("w") as stream:
            started = subprocess.Popen(
                [sys.executable, "manage.py", "runserver", "127.0.0.1:0"],
                cwd=tmp_path, env=environment(), stdout=stream, stderr=stream, start_new_session=True,
            )  # fmt: skip

        def count(text):
            return log.read_text().count(text)

        def change():
            # What changes before the server first looks at the files is not a change; so until it has noticed one.
            project.write("shop/urls.py", "urlpatterns = []\n")
            return count("reloading")

        try:
            wait_until(lambda: count("stator.ready") == 1, message=log.read_text)
            assert count("a worker runs beside the server") == 1
            wait_until(change, message=log.read_text)
            wait_until(lambda: count("ended=stopped") and count("stator.ready") > 1, message=log.read_text)
        finally:
            os.killpg(started.pid, signal.SIGKILL)
        started.wait(PATIENCE)
        wait_until(lambda: count("ended=orphaned") == 1, message=log.read_text)
        wait_until(lambda: count("stator.ended") == count("stator.ready"), message=log.read_text)


@pytest.mark.parametrize(
    ("called", "reloaded", "wanted", "starts"),
    [
        (["manage.py", "runserver"], "true", True, True),
        (["manage.py", "runserver", "--noreload"], "", True, True),
        (["manage.py", "runserver"], "", True, False),
        (["manage.py", "runserver"], "true", False, False),
        (["manage.py", "runstator", "--parent", "1"], "true", True, False),
        (["gunicorn", "site.wsgi"], "", True, False),
    ],
)  # fmt: skip
def test_only_the_process_that_serves_starts_one_and_only_if_it_is_wanted(
    called, reloaded, wanted, starts, monkeypatch, settings
):
    started = []
    monkeypatch.setattr(beside_runserver, "_start", lambda: started.append(called))
    monkeypatch.setattr(sys, "argv", called)
    monkeypatch.setenv(DJANGO_AUTORELOAD_ENV, reloaded)
    settings.STATOR = {**settings.STATOR, "RUNSERVER_WORKER": wanted}
    beside_runserver.connect()
    assert bool(started) is starts
