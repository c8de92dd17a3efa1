"""Settings that are sent ahead of statements to PostgreSQL, so that its planner uses the index of each."""

from functools import lru_cache

# Sent ahead of a statement and in force for that statement only. Every statement here uses an index; for a small or
# churned table the planner would rather read all of it, including dead rows. If the planner cannot avoid a step that is
# switched off, versions before 18 count its cost as huge. A server with LLVM would then compile the whole statement
# each time.
PLANNER = "SET LOCAL jit = off; SET LOCAL enable_seqscan = off; "

# For EXISTS: a bitmap scan would read all matching rows first.
ANY = PLANNER + "SET LOCAL enable_bitmapscan = off; "

# For statements that have the keys of their rows: for some hundred keys the planner prefers a merge join that reads the
# whole index. An index lookup for each key takes half as long; with 20,000 keys of a million rows, two fifths.
BY_KEY = PLANNER + "SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off; "

# For the first of very many rows with a value, whatever the planner expects.
TO_FIRST = BY_KEY + "SET LOCAL enable_bitmapscan = off; "

# For claims in the order of an index: a generic plan does not know how small the limit is.
BY_LINE = BY_KEY + "SET LOCAL enable_sort = off; "

# For some rows in the order of an index: with missing or old statistics the planner expects few rows, so it would read
# and sort all that match.
IN_ORDER = BY_KEY + "SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off; "

# For few of very many rows, found by a GIN index: without statistics the planner would scan all rows in their order. In
# the transaction of a claim, this setting follows the one above.
BY_GIN = BY_KEY + "SET LOCAL enable_indexscan = off; SET LOCAL enable_sort = on; SET LOCAL enable_bitmapscan = on; "

# How many rows, in the order of an index, are searched for the wanted ones before another index searches all. The
# latter then has to sort the limit's part of a queue at most: 100 of each 5,000.
FIRST_ROWS = 5000


@lru_cache(maxsize=64)
def wait_for_locks(seconds: float | None) -> str:
    """Return the setting that limits how long a statement waits for each lock; "" leaves it to the session."""
    n = None if seconds is None else max(1, int(seconds * 1000))
    return f"SET LOCAL lock_timeout = {n}; " if n else ""
