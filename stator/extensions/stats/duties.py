"""The sample of how many objects wait."""

from stator.db import own_tables
from stator.worker.duties import Duty, When, all_rows

# The queue is counted up to this depth: counting millions of rows every half minute would cost more than it is worth.
COUNTED = 100_000

# For all models of a scope in one transaction.
SAMPLE = Duty("sample_depths", own_tables.sample_depths, COUNTED, parts=all_rows, when=When.TOGETHER)
