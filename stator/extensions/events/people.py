"""The people who may send an event, as far as permissions say that."""

from typing import Any

from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model

# People who are named.
NAMED = 5

BACKEND = "django.contrib.auth.backends.ModelBackend"


def people_with(permission: str) -> list[str] | None:
    """Return up to ``NAMED`` names of active users who have a permission, and one more if there are more.

    None if that is not known: other backends may give it, or the project has users of its own kind.
    """
    if (
        not permission
        or not apps.is_installed("django.contrib.auth")
        or [*settings.AUTHENTICATION_BACKENDS] != [BACKEND]
    ):
        return None
    manager: Any = get_user_model()._default_manager
    if not hasattr(manager, "with_perm"):
        return None
    found = manager.with_perm(permission, backend=BACKEND).order_by("pk")
    return [str(user.get_username()) for user in found[: NAMED + 1]]
