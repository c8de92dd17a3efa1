"""A site on which no extension tells what it has stored."""

import pytest

from stator.rows import readings


def nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take all readings away."""
    monkeypatch.setattr(readings, "READINGS", {})
    for module in ("survey.looks", "extensions.overview.panels"):
        monkeypatch.setattr(f"stator.{module}.READINGS", {})
