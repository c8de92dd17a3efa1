"""Checks for deployments only."""

from collections.abc import Iterator

from django.conf import settings
from django.core import checks
from django.db import connections

from stator.checks.messages import message
from stator.models import StatorModel
from stator.rows.meta import by_database


def check_debug() -> Iterator[checks.CheckMessage]:
    """W401: with DEBUG, workers store the text of every query until the attempt ends."""
    if settings.DEBUG:
        text = "DEBUG is True: workers store the text of each query until the attempt ends, which makes them slower."
        yield message("W401", text, "Set DEBUG = False.")


def check_atomic_requests(models: list[type[StatorModel]]) -> Iterator[checks.CheckMessage]:
    """W402: each request is one transaction, and workers see none of its writes before it ends."""
    for alias in sorted(by_database(models)):
        if connections[alias].settings_dict.get("ATOMIC_REQUESTS"):
            text = (
                f"ATOMIC_REQUESTS is on for the database {alias!r}: workers see an object that a request creates only "
                "after the response. A view that waits for workers never gets a result."
            )
            hint = "Put transaction.non_atomic_requests on views that wait for workers, then silence this check."
            yield message("W402", text, hint)
