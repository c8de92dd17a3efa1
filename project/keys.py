"""The secret key that a checkout creates for itself, so that none is in the source and you need not set one."""

import os
import secrets
import tempfile
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured


def kept_key(path: Path) -> str:
    """Return the key in a file; create it with mode 600 if it is missing, or return an empty text if that fails."""
    try:
        if not path.exists():
            _make(path)
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            raise ImproperlyConfigured(f"{path} has mode {mode:o}, so others can use it; delete it, or chmod 600 it")
        return path.read_text().strip()
    except OSError:
        # The file system is read-only. Workers and migrations need no key, and without one Django signs nothing.
        return ""


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # mkstemp creates it with mode 600; the link makes it appear with its whole content at once.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}-")
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(50))
    try:
        os.link(name, path)
    except FileExistsError:
        # Another process was faster.
        return
    finally:
        Path(name).unlink()
