"""Which faults ``bin/mutants`` makes."""

from tests.mutation.faults import TESTS, faults_of

SOURCE = """
def late(rows, now, limit=1):
    if now > limit and rows:
        tell(rows)
    return rows.filter(held=True, until__lt=now).update(**{"held": False, "token": None})
STATEMENT = "SELECT 1 WHERE a IS NULL"
"""


def test_each_kind_of_fault_is_made(tmp_path, monkeypatch):
    monkeypatch.setitem(TESTS, "late.py", "none")
    (tmp_path / "late.py").write_text(SOURCE)
    changed = {fault.in_source(SOURCE.encode()).decode() for fault in faults_of("late.py", tmp_path)}
    for old, new in [
        ("if now > limit and rows", "if (not (now > limit and rows))"), ("now > limit", "now >= limit"),
        ("now > limit and rows", "(rows)"), ("tell(rows)", "pass"), ("limit=1", "limit=2"),
        ("held=True, until__lt=now", "until__lt=now"), ("held=True", "held=False"), ("IS NULL", "IS NOT NULL"),
        ('{"held": False, "token": None}', "{'token': None}"),
    ]:  # fmt: skip
        assert SOURCE.replace(old, new) in changed
