"""Looking at the result: a login for the admin, and Django's development server."""

import os
import re
import secrets
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.urls import reverse

DEFAULT_ADDRESS = "127.0.0.1:8000"
USERNAME = "demo"

_ADDRESS = re.compile(r"(?:(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>\d{1,5})")


def checked_address(address: str) -> str:
    """The address with host and port; raises CommandError for anything else, and where no login may be made."""
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise CommandError(
            f"--serve {address!r} is no address; give [HOST:]PORT such as {DEFAULT_ADDRESS}, and PATH before --serve",
            returncode=2,
        )
    if not settings.DEBUG:
        raise CommandError("--serve makes a login for a demo, so it needs DEBUG=True in the settings", returncode=2)
    return f"{match['host'] or '127.0.0.1'}:{match['port']}"


def ensure_login() -> str:
    """Make the user of the demo, or give it a new password; return that."""
    password = os.environ.get("CODEINDEX_PASSWORD") or secrets.token_urlsafe(9)
    user, _ = get_user_model().objects.get_or_create(username=USERNAME)
    user.is_staff = user.is_superuser = user.is_active = True
    user.set_password(password)
    user.save()
    return password


def serve(address: str, stream: Any) -> None:
    """Serve the site at a checked address until interrupted."""
    password = ensure_login()
    stream.write(f"Admin: http://{address}{reverse('admin:index')}  user: {USERNAME}  password: {password}")
    stream.flush()
    call_command("runserver", address, use_reloader=False, stdout=stream)
