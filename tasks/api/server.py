"""The HTTP server of this process: how many claims may wait in its threads, and the connections of these."""

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from socketserver import ThreadingMixIn

from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest

from tasks.conf import load_settings

# How many claims may wait if each request has a thread of its own, so that waiting requests block no other requests.
PLENTY = 20

# How many claims may wait under ASGI, where a waiting request is a task of the event loop.
MANY = 1000

# The number of threads to assume if it cannot be found out.
MIN_THREADS = 2


def most_waiting(request: HttpRequest) -> int:
    """Return how many claims may wait in this process at once: ``API_WAITING``, else half of its threads."""
    configured: int | None = load_settings().API_WAITING
    if configured is not None:
        return configured
    # Django reports threads for an ASGI request, too.
    if isinstance(request, ASGIRequest):
        return MANY
    has_threads = request.META.get("wsgi.multithread")
    if has_threads is None:
        return PLENTY
    threads = _threads() if has_threads else 1
    return PLENTY if threads is None else threads // 2


def give_connections_back() -> None:
    """Close the connections of this thread, or return them to their pools."""
    for connection in connections.all(initialized_only=True):
        # Only a test that runs in a transaction has one open here.
        if not connection.in_atomic_block:
            connection.close()


def _threads() -> int | None:
    """Return the number of the server's threads; None if it starts one for each request.

    No server reports this number. From the current thread, two kinds are recognised: a thread pool of the standard
    library, as in gunicorn, and Django's server. For any other server it is ``MIN_THREADS``.
    """
    thread = threading.current_thread()
    if isinstance(getattr(getattr(thread, "_target", None), "__self__", None), ThreadingMixIn):
        return None
    for argument in getattr(thread, "_args", ()):
        pool = argument() if isinstance(argument, weakref.ref) else None
        if isinstance(pool, ThreadPoolExecutor):
            return int(getattr(pool, "_max_workers", MIN_THREADS))
    return MIN_THREADS
