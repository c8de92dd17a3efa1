"""``python -m stator.extensions.isolation``: attempts one object at a time that its worker has claimed."""

import asyncio
import sys
from importlib import import_module
from typing import BinaryIO, TextIO

from stator.extensions.isolation.child import serve_worker


def serve(requests: BinaryIO, answers: TextIO, options: dict[str, object]) -> None:
    """Attempt the requested objects until the requests end. Options: ``json_logs``, ``database``, ``has_paths``."""
    # Imported by name: these modules need Django to be set up.
    with import_module("stator.logs").events_to(sys.stderr, options["json_logs"]):
        attempts = import_module("stator.extensions.isolation.attempts")
        asyncio.run(attempts.serve(requests, answers, options["database"], has_paths=options["has_paths"]))


if __name__ == "__main__":
    serve_worker(serve)
