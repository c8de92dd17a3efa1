"""Which Python files a directory holds right now. Reads directories, never files; knows nothing about Django."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from examples.codeindex.content import Fingerprint, Gone, fingerprint_of
from examples.codeindex.text import nameable

# Together no longer than what an index entry of PostgreSQL holds, at four bytes for a character.
LONGEST_ROOT = 255
LONGEST_PATH = 400


@dataclass(frozen=True, slots=True)
class Scan:
    """Fingerprints by the path below the root; the directories and files that had to be left out."""

    files: dict[str, Fingerprint] = field(default_factory=dict)
    unlisted: list[str] = field(default_factory=list)
    unnameable: list[str] = field(default_factory=list)

    def covers(self, path: str) -> bool:
        """Whether the scan would have seen this path: not below a directory that could not be listed."""
        return not any(path.startswith(f"{directory}/") for directory in self.unlisted)


def scan(root: str) -> Scan:
    """All `.py` files below a directory.

    Links to files are followed, links to directories are not, so that no loop is endless. Hidden directories and
    `__pycache__` are left out. Raises OSError if the root itself can not be listed.
    """
    found = Scan()
    pending = _look_into(root, "", found)
    while pending:
        pending += _look_below(root, pending.pop(), found)
    return found


def _look_below(root: str, directory: str, found: Scan) -> list[str]:
    try:
        return _look_into(root, directory, found)
    except FileNotFoundError:  # Removed since its parent was listed.
        return []
    except OSError:
        found.unlisted.append(directory)
        return []


def _look_into(root: str, directory: str, found: Scan) -> list[str]:
    """Note the files of one directory; return its subdirectories."""
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
    except Gone:  # A link that leads nowhere, a named pipe.
        return
    if nameable(path) and len(path) <= LONGEST_PATH:
        found.files[path] = fingerprint
    else:
        found.unnameable.append(path)
