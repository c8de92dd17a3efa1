"""For development: a worker beside ``manage.py runserver``, with the setting ``RUNSERVER_WORKER``."""

import atexit
import os
import subprocess
import sys

from django.utils.autoreload import DJANGO_AUTORELOAD_ENV, get_child_arguments

from stator.conf import read_settings

SERVER = "runserver"


def connect() -> None:
    """Start the worker in the process that serves; when code changes, the autoreloader replaces both."""
    if sys.argv[1:2] != [SERVER] or not read_settings()[0].RUNSERVER_WORKER:
        return
    if os.environ.get(DJANGO_AUTORELOAD_ENV) == "true" or "--noreload" in sys.argv:
        _start()


def _start() -> None:
    called = get_child_arguments()
    command = [*called[: called.index(SERVER)], "runstator", "--parent", str(os.getpid())]
    # In a session of its own, because Ctrl-C would reach it twice: from the terminal and from this process.
    worker = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    # It hands back what it has; nobody waits for that.
    atexit.register(worker.terminate)
    sys.stderr.write(f"{SERVER}: a worker runs beside the server, in process {worker.pid} (RUNSERVER_WORKER)\n")
