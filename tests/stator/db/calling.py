"""Calls of the operations on rows, in few words."""

from stator.db.probe import look
from stator.graph.failures import describe
from tests.stator.making import claim_all

ERROR = describe(ValueError("no"))


def pks(claims):
    return [claim.pk for claim in claims]


def take(operations, instance):
    """Claim this row, the only one that is ready."""
    (claim,) = claim_all(operations)
    assert claim.pk == instance.pk
    return claim


def work(operations):
    return look(operations)[operations]


def record(operations, *ended):
    return operations.record(list(ended))
