"""Settings of gunicorn for the HTTP API; ``gunicorn shop.wsgi -c gunicorn.conf.py``."""

import gc
from typing import Any

# One process for each processor.
workers = 2
threads = 8
# Seconds for which a connection may rest between two requests of a program.
keepalive = 75
# Longer than API_WAIT, so that claims that wait are answered before their process stops.
graceful_timeout = 35


def post_worker_init(worker: Any) -> None:
    """Have the garbage collector leave alone what the start has made; it walks through all of that otherwise."""
    gc.collect()
    gc.freeze()
