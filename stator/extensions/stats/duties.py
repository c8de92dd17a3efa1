"""The sample of how many objects wait, and what is done with old samples and statistics."""

from stator.extensions.stats.chores import merge_stats, sample_depths, thin
from stator.worker.duties import Duty, Upkeep, When, all_rows

# The queue is counted up to this depth: counting millions of rows every half minute would cost more than it is worth.
COUNTED = 100_000

# For all models of a scope in one transaction.
SAMPLE = Duty("sample_depths", sample_depths, COUNTED, parts=all_rows, when=When.TOGETHER)

THIN = Upkeep("thinned", "samples of the queue thinned", thin)
MERGE = Upkeep("merged", "rows of statistics merged", merge_stats)
