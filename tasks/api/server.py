"""The server that runs this process: how many of its requests may wait, so that others are answered meanwhile."""

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from socketserver import ThreadingMixIn
from typing import Any

from tasks.conf import load_settings

# Where each request has a thread of its own, those that wait hold up nobody.
PLENTY = 20

# A server that has threads, and does not show how many.
LEAST = 2


def most_waiting(request: Any) -> int:
    """Return how many claims may wait in this process at once: ``API_WAITING``, else half of the server's threads."""
    configured: int | None = load_settings().API_WAITING
    if configured is not None:
        return configured
    has_threads = request.META.get("wsgi.multithread")
    if has_threads is None:
        # Not WSGI: under ASGI Django gives each request a thread.
        return PLENTY
    threads = _threads() if has_threads else 1
    return PLENTY if threads is None else threads // 2


def _threads() -> int | None:
    """Return how many threads the server has; None where it starts one for each request.

    No server tells, but a pool of the standard library, which gunicorn has, and the server of Django can be found from
    the thread that runs the request. What is not found there counts as the least that there can be.
    """
    thread = threading.current_thread()
    if isinstance(getattr(getattr(thread, "_target", None), "__self__", None), ThreadingMixIn):
        return None
    for argument in getattr(thread, "_args", ()):
        pool = argument() if isinstance(argument, weakref.ref) else None
        if isinstance(pool, ThreadPoolExecutor):
            return int(getattr(pool, "_max_workers", LEAST))
    return LEAST
