"""Workers until idle, what signals tell meanwhile, and refusals of the command."""

from contextlib import contextmanager

import pytest
from django.core.management import CommandError, call_command

from stator.runner import StatorRunner


@contextmanager
def connected(signal, *receivers, **options):
    """These functions are receivers of a signal meanwhile."""
    for receiver in receivers:
        signal.connect(receiver, **options)
    try:
        yield
    finally:
        for receiver in receivers:
            signal.disconnect(receiver, **options)


@contextmanager
def hearing(signal, sender=None):
    """Collect the calls of a signal's receivers meanwhile."""
    heard = []

    def hear(sender, **kwargs):
        heard.append((sender, {name: value for name, value in kwargs.items() if name != "signal"}))

    with connected(signal, hear, sender=sender):
        yield heard


def work(*models, **options):
    return StatorRunner(list(models), until_idle=True, **options).run()


def refusal_of_runstator(*labels, **options):
    """Return the line with which ``runstator`` refuses its arguments."""
    with pytest.raises(CommandError) as caught:
        call_command("runstator", *labels, **options)
    assert "\n" not in str(caught.value)
    assert caught.value.returncode == 2
    return str(caught.value)
