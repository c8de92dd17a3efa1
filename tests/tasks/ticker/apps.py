"""``TICKER_STOP_AT``: a file that the worker writes once it has published a tick, and then stands still for good."""

import os
from pathlib import Path
from threading import Event

from django.apps import AppConfig


class TickerConfig(AppConfig):
    name = "tests.tasks.ticker"

    def ready(self):
        if path := os.environ.get("TICKER_STOP_AT"):
            stop_after_publishing(Path(path))


def stop_after_publishing(path):
    from tasks.models import Queue

    publish = Queue.publish_many

    def stop(self, given, **options):
        given = list(given)
        publish(self, [dict(message) for message in given], **options)
        path.write_text(" ".join(message["key"] for message in given))
        Event().wait()

    Queue.publish_many = stop
