"""What divides the rows of a site, and so makes scopes: schemas, slices of a table, and nodes."""

from stator import schemas
from stator.db import grouping, slices
from stator.db.division import DIVISIONS
from stator.rows import nodes


def connect() -> None:
    """Let them say what the scopes of the site are."""
    schemas.connect()
    grouping.connect()
    nodes.connect()
    DIVISIONS.of = slices.division_of
