"""The framework's columns of a row, and rows that are held."""

from stator.rows.beginning import FRAMEWORK_COLUMNS
from tests.stator.making import claim_all, operations_of, raw


def framework(instance):
    return raw(type(instance)).values("state", *sorted(FRAMEWORK_COLUMNS)).get(pk=instance.pk)


def claimed(instance):
    """Let a worker claim the row; gives what its handler gets."""
    (claim,) = [claim for claim in claim_all(operations_of(type(instance))) if claim.pk == instance.pk]
    claim.instance.__dict__["stator"] = claim
    return claim.instance
