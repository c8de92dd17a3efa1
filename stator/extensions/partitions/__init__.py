"""Partitions of tables on PostgreSQL: of the framework's own by time, and of managed models by the values of a column.

``tables`` reads which partitions a table has, and ``upkeep`` makes those of the time to come and drops those that are
past. ``operations`` has the migration operations, and ``conversion`` turns a table into one with partitions, and back,
by one of the ``schemes``. A model of ours whose table can have partitions names the column in ``PARTITION_COLUMN``.
"""

from stator.seams import Extension

EXTENSION = Extension(
    name="partitions",
    connect=("stator.extensions.partitions.tables.connect", "stator.extensions.partitions.upkeep.connect"),
    duties=("stator.extensions.partitions.duties.MAINTAIN",),
    looks=("stator.extensions.partitions.doctor.partitions",),
)
