"""The parts that work on every database; a vendor begins with them."""

from stator.db.claims import Claims
from stator.db.interface import Operations, Parts
from stator.db.leases import Leases
from stator.db.records import Records
from stator.db.transactions import Transactions


def parts_of(operations: Operations) -> Parts:
    """Return the portable parts of these operations."""
    return Parts(Transactions(operations), Leases(operations), Claims(operations), Records(operations))
