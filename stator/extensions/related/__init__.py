"""Related objects: objects wait for other objects (``waits_for``)."""

from stator.seams import Extension

EXTENSION = Extension(
    name="related",
    duties=("stator.extensions.related.duties.REOPEN_ALL", "stator.extensions.related.duties.REOPEN"),
)
