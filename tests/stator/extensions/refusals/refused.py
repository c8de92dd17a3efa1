"""What a store was refused."""

from stator.db.interface import Operations
from stator.extensions.refusals.condition import NotRefused
from stator.extensions.refusals.refusals import Refusals


def refusals_of(store: Operations) -> Refusals:
    [condition] = [each for each in store.conditions._bound if isinstance(each, NotRefused)]
    return condition.refusals
