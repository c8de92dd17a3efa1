"""How much a test is about: little in the suite, and what the requirements say in ``bin/chaos --full``."""

import os

FULL = bool(os.environ.get("FULL"))

# For a machine that has other work, where a process does not run for seconds. In the suite the times that are promised
# show only that nothing waits until something else happens; bin/chaos measures them, one test at a time.
CROWDED = 3.0 if FULL or os.environ.get("CHAOS") else 30.0

# Seconds after which a test that waits gives up: enough for any machine, for no promise is about them.
PATIENCE = 120.0


def size(wanted: int, bounded: int) -> int:
    """Return the number that a requirement names, or the one that bounds the test in the suite."""
    return wanted if FULL else bounded
