"""What a row has of the framework when it is new, and the names of these columns."""

from stator.rows.life import UNMARKED, Changes

UNCLAIMED: Changes = {"state_claim": None, "state_locked_until": None}

# The counters. An insert resets them even if the instance is a copy of a row with attempts.
UNCOUNTED: Changes = {"state_attempts": 0, "state_failures": 0, "state_crashes": 0, "state_version": 0}

# The values of a new row. Django would convert, send and read back each of these.
BEGUN: Changes = {
    "state_ready": True,
    "state_attempted": None,
    "state_next_attempt": None,
    **UNCLAIMED,
    **UNCOUNTED,
    **UNMARKED,
}

FRAMEWORK_COLUMNS = frozenset({"state_changed", *BEGUN})
