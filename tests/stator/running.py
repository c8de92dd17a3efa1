"""Workers until idle, and what signals tell meanwhile."""

from contextlib import contextmanager

from stator.runner import StatorRunner


@contextmanager
def hearing(signal):
    """Collect the calls of a signal's receivers meanwhile."""
    heard = []

    def hear(sender, **kwargs):
        heard.append((sender, {name: value for name, value in kwargs.items() if name != "signal"}))

    signal.connect(hear)
    try:
        yield heard
    finally:
        signal.disconnect(hear)


def work(*models, **options):
    return StatorRunner(list(models), until_idle=True, **options).run()
