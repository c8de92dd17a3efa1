"""The example of approvals: the commands of its README, in a process that has its settings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sizes import PATIENCE

pytestmark = pytest.mark.sqlite

ROOT = Path(__file__).parents[3]


def test_receipts_are_read_two_approve_the_bank_pays_once_and_everybody_gets_mails(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "STATOR_", "PYTEST"))}
    environ = kept | {
        "DATABASE_URL": f"sqlite:///{tmp_path}/approvals.sqlite3", "DEBUG": "true", "LOG_LEVEL": "WARNING",
        "OCR_SECONDS": "0", "BANK_SECONDS": "0",
        "PYTHONPATH": str(ROOT), "DJANGO_SETTINGS_MODULE": "examples.approvals.settings",
    }  # fmt: skip
    command = [sys.executable, "-W", "error", str(Path(__file__).with_name("steps.py"))]
    ended = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    lines = ended.stdout.splitlines()
    for line in (
        "No changes detected in app 'approvals'",
        "Expense 1: Train to Bern EUR 0.00 is scanning.",
        # When the receipts are read, those who have to answer are asked.
        "Subject: Expense 1 waits for you",
        "To: anna@example.org, ben@example.org",
        "Subject: Expense 3 has a receipt that nobody could read",
        "To: fay@example.org",
        "approve to approvals.Expense 1: counted; 1 more needed.",
        "approve to approvals.Expense 1: moved.",
        "Subject: Expense 1 is paid by T000001",
        "Subject: Expense 2 is rejected by anna: we have one",
        # The bank is not asked again after a failure.
        "first attempt: division by zero",
        "second attempt: paid 1",
        "asked again: 1",
    ):
        assert line in lines, line
    assert any(
        line.startswith("  Waits for 2 of 2 receipts to be in read: 2 in scanned (the oldest for") for line in lines
    )
    refused = [line for line in lines if "ina lacks" in line or "from anna already" in line or "does not take" in line]
    assert len(refused) == 3
    shown = [line for line in lines[lines.index("--") + 1 :] if not line.startswith("  ")]
    assert shown == [
        "Expense 1: Train to Bern EUR 84.50 is paid.",
        "Expense 2: A new piano EUR 12,000.00 is closed.",
        "Expense 3: Coffee for guests EUR 8.00 is submitted.",
        "Transfer 1 of 1 cents for expense 1",
    ]
