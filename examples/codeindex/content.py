"""One file on the disk: whether it has changed, and what is in it. Knows nothing about Django."""

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 5_000_000

_NOTHING_THERE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP}
_LARGEST_INTEGER = 2**63 - 1


class Gone(Exception):
    """There is no regular file at this path (any more)."""


class Unusable(Exception):
    """The file is there and can not be indexed; the text says why."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """What tells a changed file from an unchanged one without reading it.

    `mtime_ns` is None for a file that we may not read, so that it counts as changed once the permission is given.
    """

    size: int
    mtime_ns: int | None


def fingerprint_of(path: Path) -> Fingerprint:
    """The fingerprint of a file; raises Gone."""
    try:
        status = path.stat()
    except OSError as error:
        _raise_if_gone(error)
        return Fingerprint(0, None)
    if not stat.S_ISREG(status.st_mode):
        raise Gone
    return Fingerprint(status.st_size, _modified(status) if os.access(path, os.R_OK) else None)


def read(path: Path) -> bytes:
    """All that is in a file; raises Gone, or Unusable for one that is too large or refuses to be read."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        _raise_if_gone(error)
        raise Unusable(f"not readable: {error.strerror or error}") from None
    if len(content) > MAX_BYTES:
        raise Unusable(f"larger than {MAX_BYTES // 1_000_000} MB")
    return content


def digest_of(content: bytes) -> str:
    """A digest by which equal content is recognised."""
    return hashlib.sha256(content).hexdigest()


def lines_in(content: bytes) -> int:
    """The number of lines, however they end."""
    return len(content.splitlines())


def _raise_if_gone(error: OSError) -> None:
    if error.errno in _NOTHING_THERE:
        raise Gone from None


def _modified(status: os.stat_result) -> int:
    # A file system can hold times beyond the year 2262; a column of 64 bits can not.
    return max(-_LARGEST_INTEGER, min(status.st_mtime_ns, _LARGEST_INTEGER))
