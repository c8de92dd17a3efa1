"""GROUP BY for models with ``spread``: their primary key in the database may have a further column.

On PostgreSQL Django groups objects by their primary key alone, and the server accepts the other columns only if that is
the primary key of the table. After ``Distribute`` it is not, so such objects are grouped by all columns.
"""

from functools import cache

from django.db.backends.base.features import BaseDatabaseFeatures
from django.db.models import Model

from stator.capabilities import capabilities_of
from stator.rows.spread import spread_field

_allows = BaseDatabaseFeatures.allows_group_by_selected_pks_on_model


def connect() -> None:
    """Have Django ask for models with ``spread``; on the class, because each thread has connections of its own."""
    setattr(BaseDatabaseFeatures, _allows.__name__, _allows_unless_spread)


def _allows_unless_spread(features: BaseDatabaseFeatures, model: type[Model]) -> bool:
    if capabilities_of(features.connection).has_partitions and is_spread(model):
        return False
    return bool(_allows(features, model))


@cache
def is_spread(model: type[Model]) -> bool:
    """Return whether a model is managed and has ``spread``."""
    return hasattr(model, "state_graph") and spread_field(model) is not None
