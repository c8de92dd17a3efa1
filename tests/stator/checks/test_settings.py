"""Checks of the ``STATOR`` settings."""

from typing import Any

import pytest

from stator.checks.settings import check_settings
from stator.conf import load_settings


class TestSettings:
    @pytest.mark.parametrize(
        ("given", "message", "hint"),
        [
            ({"TOKEN": "short"}, "TOKEN must be a string of at least 32 bytes", "make one with secrets"),
            ({"EXTENSIONS": ["gone.away"]}, "EXTENSIONS has 'gone.away', which cannot be imported: No module", "See"),
        ],
    )
    def test_that_cannot_work_are_errors(self, settings: Any, given: Any, message: str, hint: str) -> None:
        settings.STATOR = given
        [error] = check_settings()
        assert error.id == "stator.E001"
        assert error.is_serious()
        assert error.msg.startswith(f"STATOR setting: {message}")
        assert error.hint.startswith(hint)
        assert "short" not in error.msg + error.hint

    @pytest.mark.parametrize(
        ("name", "meant"),
        [
            ("STATOR_TASK", "Did you mean STATOR_TASKS?"),
            ("STATOR_LEASE", "Write STATOR = {'LEASE': ...}."),
            ("STATOR_TASKS_LEASE", "Write STATOR_TASKS = {'LEASE': ...}."),
        ],
    )
    def test_that_nothing_reads_are_told_of(self, settings: Any, name: str, meant: str) -> None:
        setattr(settings, name, {})
        settings.STATOR_STICKER_SHOP = "https://example.com/"
        [warning] = check_settings()
        assert (warning.id, warning.msg, warning.hint) == (
            "stator.W005", f"Nothing reads the setting {name}.", meant
        )  # fmt: skip

    def test_that_means_something_else_than_in_takahes_stator_is_told_of(self, settings: Any) -> None:
        settings.STATOR_CONCURRENCY_PER_MODEL = 4
        [warning] = check_settings()
        assert (warning.id, warning.msg) == (
            "stator.W002", "STATOR_CONCURRENCY_PER_MODEL=4 limits how many objects of a model are attempted at once."
        )  # fmt: skip
        assert warning.hint.endswith("write STATOR = {'CONCURRENCY_PER_MODEL': 4}.")

    def test_that_are_gone_name_what_took_their_place_and_stop_nothing(self, settings: Any) -> None:
        settings.STATOR = {"READ_ALIAS": "replica", "LEASE": 30}
        [warning] = check_settings()
        assert (warning.id, warning.msg) == ("stator.W006", "STATOR['READ_ALIAS'] is gone: nothing reads it.")
        assert "db_for_read" in warning.hint
        assert load_settings().LEASE == 30
