"""Related objects: objects wait for others (``waits_for``), or move with them (``when_all`` and ``when_any``)."""

from stator.seams import Extension

EXTENSION = Extension(
    name="related",
    conditions=("stator.extensions.related.condition.Parked", "stator.extensions.related.condition.WaitingForRelated"),
    duties=("stator.extensions.related.duties.REOPEN_ALL", "stator.extensions.related.duties.REOPEN"),
    kinds=(
        "stator.extensions.related.problems.AWAITS_RELATED",
        "stator.extensions.related.problems.CIRCLE",
        "stator.extensions.related.problems.WAITS_FOR",
        "stator.extensions.related.problems.HEEDS_RELATED",
        "stator.extensions.related.problems.WAITING",
    ),
    effects=("stator.extensions.related.effect.HandedOn",),
    admin=("stator.extensions.related.admin",),
    followers=(
        "stator.extensions.related.followers.ReopenedWaiters",
        "stator.extensions.related.followers.Repointed",
        "stator.extensions.related.followers.Entered",
        "stator.extensions.related.followers.Related",
    ),
)
