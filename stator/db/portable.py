"""The parts that work on every database; a vendor begins with them."""

from contextlib import AbstractContextManager, nullcontext

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from stator.db.claims import Claims
from stator.db.effects import Store
from stator.db.interface import Operations, StoreParts
from stator.db.leases import Leases
from stator.db.records import Records
from stator.db.transactions import Transactions


def parts_of(operations: Operations) -> StoreParts:
    """Return the portable parts of these operations."""
    return StoreParts(Transactions(operations), Leases(operations), Claims(operations), Records(Store(operations)))


def looking(connection: BaseDatabaseWrapper, lock: float, most: float) -> AbstractContextManager[object]:
    """Return a block that keeps an open transaction usable; a vendor also limits the seconds of its statements."""
    return transaction.atomic(using=connection.alias) if connection.in_atomic_block else nullcontext()


def reading(connection: BaseDatabaseWrapper) -> AbstractContextManager[object]:
    """Return a transaction for a block that only reads; a vendor also has the database refuse writes in it."""
    return transaction.atomic(using=connection.alias)
