"""How workers find the function of a task of Django's framework."""

from importlib import import_module

from stator.texts import Json
from tasks.actions.registry import RegisteredAction, finders
from tasks.conf import DJANGO
from tasks.failures import NoHandler


def connect() -> None:
    """Find the tasks of Django's framework."""
    finders[DJANGO] = _find


def _find(path: str, queue: str, data: Json) -> RegisteredAction:
    # Imported by name, because a project may not have Django's Tasks framework.
    try:
        backend = import_module("tasks.backend.tasks_backend")
    except ImportError as error:
        raise NoHandler(f"no handler: Django's Tasks framework cannot be loaded: {error}") from error
    action: RegisteredAction = backend.action_of(path, queue, data)
    return action
