"""The signals and log lines that follow the commit of outcomes."""

import logging
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from django.dispatch import Signal

from stator import signals
from stator.db.interface import Claim, Operations, Written
from stator.db.values import Pk
from stator.graph.failures import Failure
from stator.signals import Move

logger = logging.getLogger("stator.worker")

NONE: Mapping[Pk, object] = MappingProxyType({})

# A queryset that deletes rows tells nobody whose it is.
GONE = (
    "the object is gone: the handler or somebody else deleted it; a handler whose object is to go returns a state with "
    "delete_after"
)


def tell(operations: Operations, written: Written, ended: Sequence[Claim] = ()) -> None:
    """Send signals and write log lines for written outcomes; call it after the commit.

    ``ended``: claims whose instances spare receivers of moves a query.
    """
    for claim in written.lost:
        fields = {"model": operations.label, "pk": str(claim.pk), "state": claim.state.name, "token": claim.token.hex}
        if claim.gone:
            fields["why"] = GONE
        deleted = "deleted it" if claim.instance is not None and claim.instance.pk is None else ""
        if own := claim.own_end or deleted:
            why = f"the handler itself {own}, so its result was refused; return the next state instead"
            logger.warning("stator.claim_ended", extra=fields | {"why": why})
        elif claim.ended_in_time:
            logger.info("stator.claim_ended", extra=fields)
        else:
            logger.warning("stator.lease_lost", extra=fields)
    for pk, failure in written.failures:
        # A deliberate failure is no fault of the handler, but nothing retries the object any more.
        logger.log(
            logging.WARNING if failure.deliberate else logging.ERROR,
            "stator.attempt_failed",
            extra={"model": operations.label, "pk": str(pk), "error": failure.kind, "message_text": failure.message},
            exc_info=failure.loggable,
        )
    if written.moves:
        instances = {claim.pk: claim.instance for claim in ended if claim.instance is not None}
        send_moves(operations, written.moves, written.failures, instances)
    if written.failures:
        _send_logged(signals.failed, operations, failures=written.failures)
    for signal, in_time in ((signals.lease_lost, False), (signals.claim_ended, True)):
        if pks := [claim.pk for claim in written.lost if claim.ended_in_time is in_time]:
            _send_logged(signal, operations, pks=pks)


def send_moves(
    operations: Operations,
    moves: list[Move],
    failures: Sequence[tuple[Pk, Failure]] = (),
    instances: Mapping[Pk, object] = NONE,
) -> None:
    """Send ``transitioned`` for committed moves; log receivers that raise."""
    _send_logged(signals.transitioned, operations, moves=moves, failures=failures, instances=instances)


def _send_logged(signal: Signal, operations: Operations, **values: object) -> None:
    signals.send_logged(signal, operations.model, using=operations.alias, **values)
