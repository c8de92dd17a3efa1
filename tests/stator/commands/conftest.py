"""A preview that leaves nothing behind."""

import json

import pytest
from django.db import connection

from stator import signals
from tests.stator.commands.previewing import everything, run


@pytest.fixture
def asked():
    """Asks for a preview, and sees that it has left nothing behind and told nobody; gives its JSON document."""
    heard = []

    def hear(sender, signal, **values):
        heard.append((sender, signal))

    told = (signals.transitioned, signals.failed, signals.lease_lost, signals.claim_ended, signals.became_ready)

    def ask(*arguments):
        before = everything()
        for signal in told:
            signal.connect(hear)
        try:
            document = json.loads(run(*arguments, "--json"))
        finally:
            for signal in told:
                signal.disconnect(hear)
        assert everything() == before
        assert not heard
        assert not connection.in_atomic_block
        return document

    return ask
