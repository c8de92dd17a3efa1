"""Periodic functions of this app; each call appends a line to the file ``TICKER_LOG``."""

import os
from pathlib import Path

from tasks import periodic

if "TICKER_LOG" in os.environ:

    @periodic(every=60, name="ticker.quick", missed="all")
    def quick(tick):
        with Path(os.environ["TICKER_LOG"]).open("a") as log:
            log.write(f"{tick.key}\n")
