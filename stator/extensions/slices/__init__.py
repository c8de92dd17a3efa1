"""Slices: stores for parts of the rows of a model with ``spread``, over the partitions of its table or over nodes.

``slices`` makes them, and ``nodes`` says which tables Citus has distributed; ``node_probe`` is the poll of such tables,
which ``in_shards`` puts to all of their shards.
``away`` knows which nodes do not answer, and says so.
``grouping`` has Django group their rows by all columns.
"""

from stator.seams import Extension

EXTENSION = Extension(
    name="slices",
    connect=tuple(f"stator.extensions.slices.{name}.connect" for name in ("grouping", "nodes", "slices", "in_shards")),
    looks=("stator.extensions.slices.away.nodes",),
    parts=("stator.extensions.slices.away.parts",),
)
