"""In place of a service that reads scanned receipts: it takes its time for each line, and cannot read every scan."""

import re
import time
from collections.abc import Iterator

from django.conf import settings

AMOUNT = re.compile(r"(\d+)\.(\d\d)\b")


class UnreadableError(Exception):
    """A scan on which no amount can be read."""


def read_lines(scan: str) -> Iterator[str]:
    """Yield one line after the other."""
    for line in scan.splitlines():
        time.sleep(settings.OCR_SECONDS)
        yield line


def total(lines: list[str]) -> int:
    """Return the amount of a receipt in cents: the last one that is read; raise :class:`UnreadableError` if none is."""
    found = [amount for line in lines for amount in AMOUNT.findall(line)]
    if not found:
        raise UnreadableError(f"no amount can be read on {len(lines)} lines")
    units, cents = found[-1]
    return 100 * int(units) + int(cents)
