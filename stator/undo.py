"""Undo of manual actions, for code of projects."""

from stator.extensions.undo.undoing import Undone, UndoPart, undo

__all__ = ["UndoPart", "Undone", "undo"]
