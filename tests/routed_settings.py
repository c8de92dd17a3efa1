"""The settings of tests, with jobs in threads in the other database."""

from tests.settings import *  # noqa: F403

DATABASE_ROUTERS = ["tests.routed_settings.Elsewhere"]


class Elsewhere:
    """Writes and reads one model in the other database."""

    def db_for_write(self, model, **hints):
        return "other" if model._meta.label_lower == "testapp.threadjob" else None

    db_for_read = db_for_write
