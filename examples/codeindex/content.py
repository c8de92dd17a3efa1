"""One file on disk: its fingerprint and its content. Imports nothing of Django."""

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
    """There is no regular file at this path, or not any more."""


class Unusable(Exception):
    """The file exists but cannot be indexed; the text says why."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The size and time of a file, by which a change is noticed without reading it.

    `mtime_ns` is None if the file may not be read, so that it counts as changed once it may.
    """

    size: int
    mtime_ns: int | None


def fingerprint_of(path: Path) -> Fingerprint:
    """Return the fingerprint of a file; raise `Gone`."""
    try:
        status = path.stat()
    except OSError as error:
        _raise_if_gone(error)
        return Fingerprint(0, None)
    if not stat.S_ISREG(status.st_mode):
        raise Gone
    return Fingerprint(status.st_size, _modified(status) if os.access(path, os.R_OK) else None)


def read(path: Path) -> bytes:
    """Return the content of a file; raise `Gone`, or `Unusable` if it is too large or cannot be read."""
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
    """Return the digest of a content; equal contents have equal digests."""
    return hashlib.sha256(content).hexdigest()


def lines_in(content: bytes) -> int:
    """Return the number of lines, whatever ends them."""
    return len(content.splitlines())


def _raise_if_gone(error: OSError) -> None:
    if error.errno in _NOTHING_THERE:
        raise Gone from None


def _modified(status: os.stat_result) -> int:
    # A file system may have times beyond the year 2262, for which a column of 64 bits is too small.
    return max(-_LARGEST_INTEGER, min(status.st_mtime_ns, _LARGEST_INTEGER))
