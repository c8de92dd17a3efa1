"""Related objects: objects wait for others (``waits_for``), or move with them (``when_all`` and ``when_any``)."""

from stator.seams import Extension

EXTENSION = Extension(
    name="related",
    conditions=("stator.extensions.related.condition.Parked", "stator.extensions.related.condition.WaitingForRelated"),
    duties=("stator.extensions.related.duties.REOPEN_ALL", "stator.extensions.related.duties.REOPEN"),
    kinds=(
        "stator.extensions.related.kinds.AWAITS_RELATED",
        "stator.extensions.related.kinds.CIRCLE",
        "stator.extensions.related.kinds.WAITS_FOR",
        "stator.extensions.related.kinds.HEEDS_RELATED",
        "stator.extensions.related.kinds.WAITING",
    ),
    effects=("stator.extensions.related.effect.HandedOn",),
    followers=(
        "stator.extensions.related.followers.ReopenedWaiters",
        "stator.extensions.related.followers.Repointed",
        "stator.extensions.related.followers.Entered",
        "stator.extensions.related.followers.Related",
    ),
)
