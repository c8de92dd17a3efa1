"""Partitions by time of the framework's own tables, on PostgreSQL.

``tables`` reads which partitions a table has, ``upkeep`` makes those of the time to come and drops those that are past,
and ``conversion`` turns a table into one with partitions, and back, for the migration operation ``PartitionByTime``. A
model whose table can have partitions names the column in ``PARTITION_COLUMN``.
"""

from stator.partitions.tables import Partition, is_partitioned
from stator.partitions.upkeep import UPKEEP, maintain

__all__ = ["UPKEEP", "Partition", "is_partitioned", "maintain"]
