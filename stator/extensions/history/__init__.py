"""The history of attempts, and of what people, programs and events do to objects; the latest report of each."""

from stator.seams import Extension

EXTENSION = Extension(
    name="history",
    followers=("stator.extensions.history.follower.HandHistory",),
    effects=("stator.db.history.KeptHistory", "stator.db.history.KeptReports"),
)
