"""What samples and statistics say to those who show it, and the count of what retentions delete."""

from collections.abc import Iterable

from django.db.models import Model

from stator.extensions.stats.deletions import count_deleted, deletions
from stator.extensions.stats.flows import read_flows
from stator.extensions.stats.minutes import minutes_of
from stator.extensions.stats.models import Depth, Stats
from stator.extensions.stats.paces import paces
from stator.rows.deletions import COUNTED_BY
from stator.rows.readings import READINGS, Reading
from stator.rows.stay import Stay


def connect() -> None:
    """Offer the readings, and count deletions."""
    READINGS["paces"] = Reading(Depth, paces)
    READINGS["minutes"] = Reading(Depth, minutes_of)
    READINGS["flows"] = Reading(Stats, read_flows)
    READINGS["times"] = Reading(Stats, times)
    READINGS["deletions"] = Reading(Stats, deletions)
    COUNTED_BY.append(count_deleted)


def times(using: str, models: Iterable[type[Model]]) -> dict[type[Model], dict[tuple[str, str], Stay]]:
    """Return how long objects were in a state, by model and edge, for the edges taken in the last day."""
    return {model: Stats.get_for_model(model, using).time_on_edges() for model in models}
