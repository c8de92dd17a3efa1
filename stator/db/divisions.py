"""What divides the rows of a site, and so makes scopes: schemas, and slices of a table."""

from stator import schemas
from stator.db import grouping, slices
from stator.db.division import DIVISIONS


def connect() -> None:
    """Let them say what the scopes of the site are."""
    schemas.connect()
    grouping.connect()
    DIVISIONS.of = slices.division_of
