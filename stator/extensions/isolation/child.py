"""What each isolated process does around its work; started as ``python -m MODULE LIFE GRACE REQUESTS ANSWERS``."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Collection
from importlib import import_module
from typing import BinaryIO, TextIO

import django
from django.db import DatabaseError, InterfaceError, connections

from stator.extensions.isolation.surroundings import take_over, take_over_settings
from stator.graph.failures import describe
from stator.worker.children import be_expendable, handlers_for_children

# Seconds between two checks of a process that is about to end.
GLANCE = 0.02


def serve_worker(serve: Callable[[BinaryIO, TextIO, dict[str, object]], None]) -> None:
    """Set Django up and call ``serve`` with the streams of requests and of answers, and the options, the first request.

    ``LIFE`` is one end of a pipe; the other end closes with the worker, and then this process has ``GRACE`` seconds to
    end by itself. ``REQUESTS`` and ``ANSWERS`` are ends of pipes too: standard input is empty, so that a program which
    reads it does not wait, and standard output is standard error, so that what the project's code prints is seen.
    ``serve`` answers once when it is ready, and reads requests after that.
    """
    life, incoming, outgoing = int(sys.argv[1]), int(sys.argv[3]), int(sys.argv[4])
    for number in (life, incoming, outgoing):
        # The programs that the project's code starts must neither read requests nor keep the worker waiting.
        os.set_inheritable(number, False)
    _end_with(life, float(sys.argv[2]), {0, 1, 2, incoming, outgoing})
    os.dup2(2, 1)
    be_expendable()
    for number in handlers_for_children((signal.SIGINT, signal.SIGTERM)):
        # A signal to the whole service, as systemd sends it, is meant for the worker, which waits for this process or
        # kills it. Not SIG_IGN, which processes that the project's code starts would inherit.
        signal.signal(number, lambda *_: None)
    requests, answers = os.fdopen(incoming, "rb"), os.fdopen(outgoing, "w", buffering=1)
    options = json.loads(requests.readline())
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
        serve(requests, answers, options)
    connections.close_all()


def _end_with(pipe: int, grace: float, streams: Collection[int]) -> None:
    """Fork a process that kills the process group once the other end of a pipe is closed: its owner is gone.

    Before that, this process has ``grace`` seconds to end by itself. A thread could not kill it, because code in this
    process may hold the interpreter. ``streams``: the descriptors whose end others wait for.
    """
    leader = os.getpid()
    if os.fork():
        return
    # systemd sends SIGTERM to all processes of a unit; this one stays for as long as its leader does.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        for stream in streams:
            os.close(stream)
        while os.read(pipe, 1):
            pass
        deadline = time.monotonic() + grace
        while os.getppid() == leader and time.monotonic() < deadline:
            time.sleep(GLANCE)
    finally:
        os.killpg(0, signal.SIGKILL)
