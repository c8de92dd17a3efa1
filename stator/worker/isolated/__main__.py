"""``python -m stator.worker.isolated FD OPTIONS``: reads requests from standard input, one line of JSON each.

``FD`` is one end of a pipe; the other end closes with the worker. ``OPTIONS`` is JSON: ``json_logs``,
``database``, ``schemas``.
"""

import asyncio
import json
import os
import signal
import sys
from importlib import import_module

from stator.worker.supervisor import be_expendable, end_with, handlers_for_children

# Seconds that this process has to hand back its object when its worker is gone.
HANDING_BACK = 2.0


def main() -> None:
    """Attempt the requested objects until standard input ends."""
    end_with(int(sys.argv[1]), HANDING_BACK)
    options = json.loads(sys.argv[2])
    be_expendable()
    for number in handlers_for_children((signal.SIGINT, signal.SIGTERM)):
        # The worker gets them too, and ends this process. Not SIG_IGN, which processes that a handler starts would
        # inherit.
        signal.signal(number, lambda *_: None)
    # Prints of handlers go to standard error, so that standard output has nothing but answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import_module("django").setup()
    logged = import_module("stator.logs").events_to(sys.stderr, options["json_logs"])
    with logged, import_module("stator.db.files").watched_files():
        serve = import_module("stator.worker.isolated.attempts").serve
        asyncio.run(serve(sys.stdin, answers, options["database"], options["schemas"]))


if __name__ == "__main__":
    main()
