"""What each isolated process does around its work; it is started as ``python -m MODULE FD GRACE``."""

import json
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, TextIO

import django
from django.db import DatabaseError, InterfaceError, connections

from stator.graph.failures import describe
from stator.worker.isolated.surroundings import take_over, take_over_settings
from stator.worker.supervisor import be_expendable, end_with, handlers_for_children


def serve_worker(serve: Callable[[TextIO, dict[str, Any]], None]) -> None:
    """Set Django up and call ``serve`` with the stream for answers and the options, the first line of standard input.

    ``FD`` is one end of a pipe; the other end closes with the worker, and then this process has ``GRACE`` seconds to
    end by itself. ``serve`` answers once when it is ready, and reads requests after that.
    """
    end_with(int(sys.argv[1]), float(sys.argv[2]))
    be_expendable()
    for number in handlers_for_children((signal.SIGINT, signal.SIGTERM)):
        # A signal to the whole service, as systemd sends it, is meant for the worker, which waits for this process or
        # kills it. Not SIG_IGN, which processes that the project's code starts would inherit.
        signal.signal(number, lambda *_: None)
    # Prints of the project's code go to standard error, so that standard output has nothing but answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    options = json.loads(sys.stdin.buffer.readline())
    take_over(options)
    try:
        django.setup()
    except (DatabaseError, InterfaceError) as error:
        # Some app asks its database when it is loaded.
        why = describe(error).message.partition("\n")[0]
        answers.write(json.dumps({"not_ready": f"Django could not be set up: {why}"}) + "\n")
        return
    take_over_settings(options)
    # Imported by name: this module needs Django to be set up.
    with import_module("stator.db.files").watched_files():
        serve(answers, options)
    connections.close_all()
