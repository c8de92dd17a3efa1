"""What a worker did, once it has ended."""

from dataclasses import dataclass, field


@dataclass
class Summary:
    """What a worker did: attempts per model, moves per ``(model, state)``, errors and refused writes.

    ``forced``: it was told twice to stop. ``unfinished``: attempts that did not end in time and were given up.
    ``ended``: why, ``"idle"``, ``"time over"``, ``"stopped"`` or ``"forced"``; empty while it works.
    """

    handled: dict[str, int] = field(default_factory=dict)
    moved: dict[tuple[str, str], int] = field(default_factory=dict)
    failed: int = 0
    lost: int = 0
    forced: bool = False
    unfinished: int = 0
    ended: str = ""
