"""Tokens of claims and of workers, and which ready rows a claim takes."""

import os
from enum import Enum
from uuid import UUID


class Crashes(Enum):
    """Which ready rows a claim takes, by the number of leases that they lost in a row."""

    NONE = "none"
    # So few that they run beside others, but only a limited number of them in one process.
    FEW = "few"
    # So many that each runs alone.
    MANY = "many"


def new_worker_id() -> str:
    """Return twelve random hexadecimal digits that name a worker process."""
    return os.urandom(6).hex()


def new_token(worker_id: str) -> UUID:
    """Return a new token: a UUID of version 8 (RFC 9562) that starts with the id of its worker."""
    random = int.from_bytes(os.urandom(10), "big")
    return UUID(int=(int(worker_id, 16) << 80) | (random & ~(0xF << 76) & ~(0x3 << 62)) | (0x8 << 76) | (0x2 << 62))
