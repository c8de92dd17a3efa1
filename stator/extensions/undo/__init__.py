"""Undo: for an hour, manual actions on many objects can be taken back."""

from stator.seams import Extension

EXTENSION = Extension(
    name="undo",
    followers=("stator.extensions.undo.follower.Remembered",),
    admin=("stator.extensions.undo.admin.notices",),
    commands=("stator.extensions.undo.undo",),
)
