"""The Python files of a directory. Reads directories, never files; imports nothing of Django."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from examples.codeindex.content import Fingerprint, Gone, fingerprint_of
from examples.codeindex.text import nameable

# Together, at four bytes for a character, they fit into an index entry of PostgreSQL.
MAX_ROOT = 255
MAX_PATH = 400


@dataclass(frozen=True, slots=True)
class Scan:
    """Fingerprints by path below the root, and the directories and files that had to be left out."""

    files: dict[str, Fingerprint] = field(default_factory=dict)
    unlisted: list[str] = field(default_factory=list)
    unnameable: list[str] = field(default_factory=list)

    def covers(self, path: str) -> bool:
        """Return whether the scan would have found this path: no directory above it failed to be listed."""
        return not any(path.startswith(f"{directory}/") for directory in self.unlisted)


def scan(root: str) -> Scan:
    """Return all `.py` files below a directory.

    Links to files are followed, links to directories are not, because they may form a loop. Hidden directories and
    `__pycache__` are left out. Raises `OSError` if the root itself cannot be listed.
    """
    found = Scan()
    pending = _list(root, "", found)
    while pending:
        pending += _list_if_possible(root, pending.pop(), found)
    return found


def _list_if_possible(root: str, directory: str, found: Scan) -> list[str]:
    try:
        return _list(root, directory, found)
    except FileNotFoundError:  # Removed since its parent was listed.
        return []
    except OSError:
        found.unlisted.append(directory)
        return []


def _list(root: str, directory: str, found: Scan) -> list[str]:
    """Add the files of one directory to ``found``; return its subdirectories."""
    subdirectories: list[str] = []
    with os.scandir(Path(root, directory)) as entries:
        for entry in entries:
            path = f"{directory}/{entry.name}" if directory else entry.name
            if entry.is_dir(follow_symlinks=False):
                subdirectories += [path] if _wanted(entry.name) else []
            elif entry.name.endswith(".py"):
                _note(path, Path(entry), found)
    return subdirectories


def _wanted(directory: str) -> bool:
    return not directory.startswith(".") and directory != "__pycache__"


def _note(path: str, full_path: Path, found: Scan) -> None:
    try:
        fingerprint = fingerprint_of(full_path)
    except Gone:  # A broken link, or not a regular file.
        return
    if nameable(path) and len(path) <= MAX_PATH:
        found.files[path] = fingerprint
    else:
        found.unnameable.append(path)
