"""Which rows the database has refused to this process lately."""

from django.db.models import Q

from stator.db.conditions import Condition


class NotRefused(Condition):
    """Rows whose change was refused are not tried again at once."""

    of_processes = True

    @property
    def is_silent(self) -> bool:  # type: ignore[override]
        """Whether nothing was refused."""
        return not self._store.refusals.held

    def rows(self, deed: str) -> Q | None:
        return self._store.refusals.others(deed) or None
