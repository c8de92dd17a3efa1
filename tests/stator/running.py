"""Workers until idle, and what signals tell meanwhile."""

from contextlib import contextmanager

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
