"""The reports of ``Model.stator``."""

from typing import Any, Self

from django.db.models import Exists

from stator.extensions.reports.models import reports_of
from stator.rows.meta import owner_of


class Reporting:
    """Verbs of a queryset of a managed model."""

    model: Any
    db: Any

    def with_report(self, **lookups: object) -> Self:
        """Return the rows whose latest report matches, for instance ``with_report(fingerprint="...")``."""
        rows: Any = self
        reported: Self = rows.filter(Exists(reports_of(owner_of(self.model), self.db, **lookups)))
        return reported
