"""Schemas: scopes with a path, the schema of PostgreSQL where the statements of a context find their tables first.

``paths`` sets the path of connections. ``served`` finds the schemas that a worker serves; those without work rest
(``resting``), and many of them are looked into at once (``looks``). ``structures`` tells which have the same tables.
"""

from stator.seams import Extension

EXTENSION = Extension(
    name="schemas",
    arguments=("stator.extensions.schemas.arguments",),
    connect=("stator.extensions.schemas.paths.connect", "stator.extensions.schemas.served.connect"),
)
