"""Which rows may be claimed: each condition once as ``Q``, and once as text for statements on PostgreSQL.

A test proves for each pair that both match the same rows.
"""

from collections.abc import Iterable
from enum import Enum

from django.db.models import Q

from stator.conf import Settings
from stator.rows.state_column import StateField

# Index ``st_ready``, and ``st_rest`` for rows that are neither ready nor held.
READY = Q(state_ready=True, state_claim=None)
RESTING = Q(state_ready=False, state_claim=None)


class Crashes(Enum):
    """Which ready rows a claim takes, by the number of leases that they lost in a row."""

    NONE = "none"
    # Few enough lost leases to run beside other rows, but only a limited number of such rows in one process.
    FEW = "few"
    # Enough lost leases that each row runs alone.
    MANY = "many"

    def bounds(self, settings: Settings) -> tuple[int, int]:
        """Return the lowest number of lost leases, and the lowest that is too high."""
        alone = settings.alone_from
        return {Crashes.NONE: (0, 1), Crashes.FEW: (1, alone), Crashes.MANY: (alone, settings.MAX_CRASHES)}[self]

    def matches(self, settings: Settings) -> Q:
        """Return a filter for rows by the number of lost leases; index ``st_crash`` unless that is 0."""
        if self is Crashes.NONE:
            return Q(state_crashes=0)
        lowest, too_high = self.bounds(settings)
        # "Above 0" repeats the condition of the index, which the planner cannot infer from a parameter.
        return Q(state_crashes__gt=0, state_crashes__gte=lowest, state_crashes__lt=too_high)


def claimable(field: StateField, states: Iterable[str], settings: Settings) -> Q:
    """Return a filter for the rows in some states that may be claimed, which are not quarantined.

    ``field``: the field of the state.
    """
    return READY & Q(**field.among(sorted(states)), state_crashes__lt=settings.MAX_CRASHES)


def claimable_sql(crashes: Crashes) -> str:
    """Return :func:`claimable` and :meth:`Crashes.matches` together, as text with a hole for the ``column``.

    Values: ``states``, as they are stored, and, for rows that lost leases, ``lowest`` and ``too_high``.
    """
    if crashes is Crashes.NONE:
        return f"{_READY} AND state_crashes = 0"
    return f"{_READY} AND state_crashes > 0 AND state_crashes >= %(lowest)s AND state_crashes < %(too_high)s"


_READY = "state_ready AND state_claim IS NULL AND {column} = ANY(%(states)s)"
