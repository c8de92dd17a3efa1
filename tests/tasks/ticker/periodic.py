"""Periodic functions of this app; each call appends a line to the file ``TICKER_LOG``."""

import os
from pathlib import Path
from threading import Event

from tasks import periodic


def note(text):
    with Path(os.environ["TICKER_LOG"]).open("a") as log:
        log.write(f"{text}\n")


if "TICKER_LOG" in os.environ:

    @periodic(every=60, name="ticker.quick", missed="all")
    def quick(tick):
        note(tick.key)

    @periodic(every=3600, name="ticker.stuck")
    def stuck(tick):
        note(tick.key)
        Event().wait()
