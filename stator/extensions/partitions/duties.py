"""The partitions of the time to come are made before anything is written into them."""

from stator.worker.duties import Duty, When, all_rows, maintain

MAINTAIN = Duty("partitions", maintain, parts=all_rows, when=When.FIRST)
