"""Notices of dead letters: ``NOTIFY`` is called once for each task that ended without success."""

from stator.seams import Extension

EXTENSION = Extension(
    name="notices",
    connect=("tasks.extensions.notices.sending.connect",),
    followers=("tasks.extensions.notices.sending.OfNotices",),
)
