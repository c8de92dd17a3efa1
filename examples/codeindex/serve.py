"""The site for ``--serve``: a login for the admin, Django's development server, and a worker beside it."""

import os
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command
from django.urls import reverse

DEFAULT_ADDRESS = "127.0.0.1:8000"
USERNAME = "demo"
# Seconds; longer than a worker waits for its attempts.
STOPS_WITHIN = 30

_ADDRESS = re.compile(r"(?:(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>\d{1,5})")


def checked_address(address: str) -> str:
    """Return the address with host and port; raise `CommandError` if it is not one, or if `DEBUG` is off."""
    match = _ADDRESS.fullmatch(address)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise CommandError(
            f"--serve {address!r} is not an address; give [HOST:]PORT such as {DEFAULT_ADDRESS}; "
            "PATH comes before --serve",
            returncode=2,
        )
    if not settings.DEBUG:
        raise CommandError("--serve creates a demo login, so it needs DEBUG=True in the settings", returncode=2)
    return f"{match['host'] or '127.0.0.1'}:{match['port']}"


def ensure_login() -> str:
    """Create the user ``demo``, or set a new password for it; return the password."""
    password = os.environ.get("CODEINDEX_PASSWORD") or secrets.token_urlsafe(9)
    user, _ = get_user_model().objects.get_or_create(username=USERNAME)
    user.is_staff = user.is_superuser = user.is_active = True
    user.set_password(password)
    user.save()
    return password


def serve(address: str, stream: Any) -> None:
    """Serve the site at a checked address, with a worker of its own, until interrupted."""
    password = ensure_login()
    stream.write(f"Admin: http://{address}{reverse('admin:index')}  user: {USERNAME}  password: {password}")
    stream.write("A worker runs beside the site: move a file to found in the admin, and see its timeline.")
    stream.flush()
    with worker():
        call_command("runserver", address, use_reloader=False, stdout=stream)


@contextmanager
def worker() -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker process while the block runs; then stop it, and kill it if that takes over 30 s."""
    # By default SIGTERM ends this process at once, and the worker would go on.
    before = signal.signal(signal.SIGTERM, _exit)
    process = subprocess.Popen([sys.executable, str(settings.BASE_DIR / "manage.py"), "runstator", "--name", USERNAME])
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOPS_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, frame: object) -> None:
    sys.exit(128 + number)
