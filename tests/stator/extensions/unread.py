"""A site on which no extension tells what it has stored."""

import pytest

from stator.rows.readings import READINGS


def nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take all readings away."""
    for name in [*READINGS]:
        monkeypatch.delitem(READINGS, name)
