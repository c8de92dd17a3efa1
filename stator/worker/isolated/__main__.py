"""``python -m stator.worker.isolated FD OPTIONS``: requests come in by standard input, each a line of JSON.

``FD`` is the end of a pipe whose other end closes with the worker. ``OPTIONS`` is JSON: ``json_logs``, ``database``.
"""

import asyncio
import json
import os
import signal
import sys
from importlib import import_module

from stator.supervisor import be_expendable, end_with


def main() -> None:
    """Attempt what is asked for until standard input ends."""
    end_with(int(sys.argv[1]))
    options = json.loads(sys.argv[2])
    be_expendable()
    for number in (signal.SIGINT, signal.SIGTERM):
        # The worker hears them too, and says when this process ends. Not ignored: what a handler starts inherits that.
        signal.signal(number, lambda *_: None)
    # Whatever a handler prints goes to the error output: answers stand alone.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import_module("django").setup()
    logged = import_module("stator.logs").events_to(sys.stderr, options["json_logs"])
    with logged, import_module("stator.db.files").watched_files():
        serve = import_module("stator.worker.isolated.attempts").serve
        asyncio.run(serve(sys.stdin, answers, options["database"]))


if __name__ == "__main__":
    main()
