"""The command ``stator doctor``: its exit code and its findings."""

import io
import json

from django.core.management import call_command


def examined(*arguments):
    """``(exit code, findings by check)``."""
    out, code = io.StringIO(), 0
    try:
        call_command("stator", "doctor", "--json", *arguments, stdout=out)
    except SystemExit as ended:
        code = ended.code
    answer = json.loads(out.getvalue())
    assert answer["ok"] is (code == 0)
    return code, {finding["check"]: finding for finding in answer["findings"]}
