"""Tests mirror the code: ``stator/db/claims.py`` is tested in ``tests/stator/db/test_claims.py``.

A module with many tests has several files. Each is named after the module and its subject: ``test_claims_limits.py``.
A file about a whole package is named after the package: ``tests/stator/admin/test_admin_queries.py``.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("stator", "tasks")

# Contracts over many modules.
SUBJECTS = {
    "stator/test_databases.py": "two databases know nothing of each other: claims, reports and notifications",
    "stator/test_keys.py": "whatever is done with rows, over each kind of primary key, table and inheritance",
    "stator/test_known_faults.py": "each fault of the original, by name",
    "stator/test_takahe.py": "a project written for the original runs unchanged",
}

# Modules that no file of tests is named after: the file that tests them, and why there.
TESTED_ELSEWHERE = {
    "stator/admin/remedies.py": ("stator/admin/test_overview.py", "buttons of the overview, seen on its page"),
    "stator/apps.py": ("stator/checks/test_checks.py", "nothing works unless it has connected everything"),
    "stator/commands/doctor/finding.py": ("stator/commands/doctor/test_doctor.py", "one value of every check"),
    "stator/db/__init__.py": ("stator/db/test_interface.py", "the choice of the vendor is the way to the interface"),
    "stator/db/at_once.py": ("tasks/queue/test_at_once.py", "used by queues alone, and counted there"),
    "stator/db/compiler.py": ("stator/db/test_records.py", "its SQL is proved by what is recorded with it"),
    "stator/db/history.py": ("stator/rows/test_reports.py", "the rows that it writes are those of the history"),
    "stator/db/portable.py": ("stator/db/test_interface.py", "every test of db runs on these parts too"),
    "stator/db/probe.py": ("stator/db/test_claims.py", "a poll is right if claims find what it found"),
    "stator/db/sql.py": ("stator/db/test_postgresql_plans.py", "text of statements, proved by their plans"),
    "stator/db/strategies.py": ("stator/db/test_ordering.py", "a strategy is an order of claims"),
    "stator/db/transactions.py": ("stator/db/test_locks.py", "row locks and their order"),
    "stator/exceptions.py": ("stator/test_models_moving.py", "messages of refusals, tested where they are raised"),
    "stator/overview/awaited.py": ("stator/overview/test_troubles.py", "each awaited object is a line of problems"),
    "stator/testing_graph/certain.py": ("stator/test_testing_graph.py", "one check of a graph asks all three"),
    "stator/testing_graph/policy.py": ("stator/test_testing_graph.py", "the same"),
    "stator/testing_graph/walks.py": ("stator/test_testing_graph.py", "the same"),
    "stator/worker/isolated/__main__.py": ("stator/worker/test_alone.py", "a process, driven by its worker"),
    "stator/worker/isolated/attempts.py": ("faults/test_alone.py", "the same, with real processes that die"),
    "stator/worker/isolated/process.py": ("stator/worker/test_alone.py", "the same"),
    "stator/worker/supervisor.py": ("faults/test_memory.py", "processes that end, with real ones"),
    "tasks/admin/confirmation.py": ("tasks/admin/test_actions.py", "the page that each action shows first"),
    "tasks/api/schedule_schemas.py": ("tasks/api/test_schedules.py", "shapes of what its endpoints take and give"),
    "tasks/api/schemas.py": ("tasks/api/test_documents.py", "every shape and example, as the document has it"),
    "tasks/api/urls.py": ("tasks/api/test_errors.py", "paths and methods that are none"),
    "tasks/apps.py": ("tasks/queue/test_shared_tasks.py", "receivers that it connects settle shared tasks"),
    "tasks/indexes.py": ("tasks/queue/test_claiming_plans.py", "an index, proved by the planner"),
    "tasks/queue/claimants.py": ("tasks/queue/test_queues.py", "one table, written by claims"),
    "tasks/queue/late_ticks.py": ("tasks/schedules/test_troubles.py", "late schedules, told by their troubles"),
}


def test_each_file_of_tests_mirrors_a_module_or_is_a_known_subject():
    stray = sorted(path for path in files_of_tests() if mirrored(path) is None and path not in SUBJECTS)
    assert stray == [], "name each after the module that it tests, as docs/internals.rst says"


def test_each_module_with_behaviour_has_tests_of_its_name():
    tested = {mirrored(path) for path in files_of_tests()}
    missing = [module for module in modules() if module not in tested and module not in TESTED_ELSEWHERE]
    assert missing == [], "add tests/.../test_<module>.py for each"


def test_lists_of_exceptions_name_nothing_that_is_gone_or_needs_no_exception():
    tested = {mirrored(path) for path in files_of_tests()}
    assert [path for path in SUBJECTS if path not in files_of_tests() or mirrored(path)] == []
    assert [module for module in TESTED_ELSEWHERE if module not in modules() or module in tested] == []
    assert [path for path, _ in TESTED_ELSEWHERE.values() if not (ROOT / "tests" / path).exists()] == []


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("stator/db/test_claims.py", "stator/db/claims.py"),
        ("stator/db/test_claims_limits.py", "stator/db/claims.py"),
        ("stator/db/test_bounded_counts.py", "stator/db/bounded_counts.py"),
        ("stator/admin/test_admin_queries.py", "stator/admin/__init__.py"),
        ("stator/test_explain.py", "stator/explain/__init__.py"),
        ("tasks/actions/isolation/test_main.py", "tasks/actions/isolation/__main__.py"),
        ("stator/test_claims.py", "stator/claims.py"),
        ("stator/db/test_claim.py", None),
        ("stator/db/test_stray.py", None),
        ("stator/nowhere/test_claims.py", None),
        ("tasks/db/test_claims.py", None),
    ],
)
def test_stray_file_is_seen_and_others_are_not(path, module):
    assert mirrored(path) == module


@pytest.mark.parametrize(
    ("source", "behaves"),
    [
        ("LIMIT = 3", False),
        ("class Lost(Exception):\n    '''The lease ran out.'''", False),
        ("class Part(Protocol):\n    def run(self):\n        '''Run.'''\n        ...", False),
        ("def double(n):\n    return 2 * n", True),
        ("class Part:\n    async def run(self):\n        await self.other()", True),
    ],
)
def test_module_without_statements_in_functions_needs_no_tests(source, behaves):
    assert has_behaviour(ast.parse(source)) is behaves


def files_of_tests():
    """The files of tests of both packages, as paths below ``tests``."""
    found = (path for package in PACKAGES for path in (ROOT / "tests" / package).rglob("test_*.py"))
    return [str(path.relative_to(ROOT / "tests")) for path in found]


def modules():
    """The modules of both packages that have behaviour."""
    found = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return [
        str(path.relative_to(ROOT))
        for path in found
        if "migrations" not in path.parts and has_behaviour(ast.parse(path.read_text()))
    ]


def has_behaviour(tree):
    """Whether any function of a module does anything; a protocol does not."""
    return any(not all(is_empty(statement) for statement in node.body) for node in functions_of(tree))


def functions_of(tree):
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def is_empty(statement):
    """Whether a statement is a docstring or three dots."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def mirrored(path):
    """The module that a file of tests is named after: the one with the longest name that begins the file's."""
    folder, name = Path(path).parent, Path(path).stem.removeprefix("test_")
    while name:
        for module in candidates(folder, name):
            if (ROOT / module).exists():
                return str(module)
        name = name.rpartition("_")[0]
    return None


def candidates(folder, name):
    yield folder / ("__main__.py" if name == "main" else f"{name}.py")
    yield folder / name / "__init__.py"
    if folder.name == name:
        yield folder / "__init__.py"
