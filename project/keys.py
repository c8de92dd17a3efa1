"""The key that a checkout makes for itself, so that none stands in the source and nobody has to set one to begin."""

import os
import secrets
import tempfile
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured


def kept_key(path: Path) -> str:
    """Return the key in a file, which is made with mode 600 when there is none; empty where it cannot be made."""
    try:
        if not path.exists():
            _make(path)
        mode = path.stat().st_mode & 0o777
        if mode & 0o077:
            raise ImproperlyConfigured(f"{path} has mode {mode:o}, so others can use it; delete it, or chmod 600 it")
        return path.read_text().strip()
    except OSError:
        # A file system that can only be read. Workers and migrations need no key, and Django signs nothing without one.
        return ""


def _make(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Made with mode 600, and there at once with all that is in it.
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
