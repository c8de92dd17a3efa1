"""Fixtures and hooks for all tests."""

import gc
import os
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from stator.capabilities import capabilities_of
from stator.graph.running import RUNNING
from tests import emptying, shapes, template_databases
from tests.extensions import ROOT, own_files
from tests.mixing import mixed
from tests.processes import WorkerProcess, environment_for_subprocess
from tests.proofs.proof import table
from tests.settings import TEST_DIRECTORY

BROWSER = "tests/browser/"
# What no database and no version of Django changes; bin/test tests it once, on PostgreSQL. Of admin and API, who may
# do what, and how many statements a page takes, are here; of workers, all but how several processes share what there
# is; of schedules, all but the ticks themselves. Attempts of tasks and of rows of models are made by the same
# workers, so those of tasks are tested once. What operators read is told by the same code of the same figures, each
# of which has its tests elsewhere. Of harm to processes, how they die under a claim is tested everywhere, and what
# becomes of threads, signals, memory and children once. So is what comes of rows that others change under a handler,
# and of two versions of the code: what the database answers then is tested with its statements. Of browsers, one page
# with all its scripts is tested everywhere.
ONCE = (
    "tests/benchmarks/", "tests/browser/test_accessibility.py",
    "tests/browser/test_docs_search.py", "tests/browser/test_operating.py", "tests/browser/test_overview.py",
    "tests/browser/test_themes.py", "tests/browser/test_walk.py", "tests/deploy/", "tests/docs/", "tests/examples/",
    "tests/faults/test_alone.py::test_it", "tests/faults/test_checker.py", "tests/faults/test_handlers.py::test_child",
    "tests/faults/test_handlers.py::test_handlers", "tests/faults/test_kill.py::test_handler_that_exits",
    "tests/faults/test_memory.py", "tests/faults/test_rows.py::test_row_that", "tests/faults/test_rows.py::test_state",
    "tests/faults/test_rows.py::test_what", "tests/faults/test_schema.py::test_worker",
    "tests/faults/test_shutdown.py::test_killed", "tests/faults/test_shutdown.py::test_one",
    "tests/faults/test_shutdown.py::test_second", "tests/faults/test_shutdown.py::test_worker",
    "tests/faults/test_versions.py", "tests/mutation/", "tests/operating/test_approvers.py",
    "tests/operating/test_hanging.py", "tests/operating/test_limits.py",
    "tests/operating/test_sentences_of_operators.py", "tests/operating/test_times.py",
    "tests/operating/test_who_lives.py::test_sentences_agree", "tests/servers/", "tests/stator/admin/test_access.py",
    "tests/stator/admin/test_admin_queries.py", "tests/stator/checks/test_shadowing.py",
    "tests/stator/commands/test_commands_situations.py", "tests/stator/extensions/schemas/test_schemas",
    "tests/stator/extensions/tracing/", "tests/stator/management/commands/test_runstator.py",
    "tests/stator/test_models_adding.py::test_large_table", "tests/stator/test_terminal.py",
    "tests/stator/test_testing.py", "tests/stator/test_testing_graph.py", "tests/stator/test_views.py",
    "tests/tasks/extensions/isolation/",
    "tests/tasks/extensions/throttles/test_frequency.py", "tests/tasks/actions/test_registry.py",
    "tests/tasks/actions/test_secrets.py",
    "tests/tasks/actions/test_threads.py::test_", "tests/tasks/admin/test_admin_hostile.py::test_form_of",
    "tests/tasks/admin/test_admin_hostile.py::test_pages", "tests/tasks/admin/test_admin_permissions.py",
    "tests/tasks/admin/test_admin_queries.py::test_list_and", "tests/tasks/api/test_access.py",
    "tests/tasks/api/test_api_guide.py", "tests/tasks/api/test_server.py", "tests/tasks/client/",
    "tests/tasks/extensions/consume/test_consuming_bots.py::test_bot",
    "tests/tasks/queue/test_process_eligibility_queues.py", "tests/tasks/schedules/test_periodic.py",
    "tests/tasks/schedules/test_rates.py", "tests/tasks/schedules/test_schedules.py",
    "tests/tasks/schedules/test_ticking_overlap.py", "tests/tasks/schedules/test_ticking_workers.py::test_functions",
    "tests/tasks/schedules/test_timetable.py", "tests/tasks/test_datetimes.py", "tests/tasks/test_graph.py",
    "tests/tasks/test_messages.py", "tests/tasks/worker/test_attempts.py", "tests/tasks/worker/test_attempts_room.py",
    "tests/tasks/worker/test_attempts_workers.py", "tests/test_installing.py", "tests/test_layers.py", "tests/typing/",
)  # fmt: skip
# What operators see, and what stands on claims, records and reasons that are tested on each database: of each module
# one test shows what a newer Django or Python changes.
FRAMEWORK = (
    "tests/operating/", "tests/stator/commands/", "tests/stator/extensions/metrics/",
    "tests/stator/extensions/overview/", "tests/stator/extensions/pauses/test_admin.py",
    "tests/stator/extensions/processes/", "tests/stator/extensions/schemas/test_all_schemas.py",
    "tests/stator/extensions/shadow/", "tests/stator/extensions/undo/test_admin.py", "tests/stator/survey/",
    "tests/tasks/diagnosis/", "tests/tasks/extensions/api/", "tests/tasks/extensions/consume/", "tests/tasks/worker/",
)  # fmt: skip
# Where databases differ: how they lock, what they refuse, whose turn it is, what is left of a process that is killed.
# bin/test has this on SQLite, too. The rest is on PostgreSQL there, and in .ci/run on SQLite with the newest versions.
DATABASE = ("tests/faults/", "tests/proofs/", "tests/stator/db/", "tests/tasks/queue/")
# What takes long, and mostly shows elsewhere first: RELEASE=1 bin/test runs it as well, before a release. Benchmarks
# run at their real sizes then, too, and faults in bin/chaos. Packages for schemas and other languages change when they
# are released. Examples over HTTP are calls that the tests of the API and of its client make. What an action of its
# own process holds or prints, its code decides. The twelve situations are mended by commands in each run. What an
# earlier version left in a database, and a rollout under load, change with rows and columns. A worker that
# a developer's tool starts anew is one as any other. Of pages and examples that start very many processes, the steps
# and other pages are in each run.
RELEASE = (
    "tests/benchmarks/test_modules.py", "tests/browser/test_accessibility.py", "tests/browser/test_docs_search.py",
    "tests/browser/test_themes.py", "tests/browser/test_walk.py", "tests/examples/codeindex/test_kill.py",
    "tests/benchmarks/test_beside.py::test_both",
    "tests/docs/test_first_hours.py::test_page_is_followed_without_an_edit[how-to/adopt]",
    "tests/docs/test_first_hours.py::test_page_is_followed_without_an_edit[how-to/events]",
    "tests/examples/orders/test_orders.py::test_orders",
    "tests/faults/test_release_migration.py::test_what",
    "tests/faults/test_versions.py",
    "tests/stator/extensions/processes/test_beside_runserver.py::test_worker",
    "tests/stator/extensions/processes/test_reloader.py::test_work",
    "tests/stator/extensions/schemas/test_schemas_packages.py",
    "tests/tasks/api/test_api_guide.py::test_clients", "tests/tasks/api/test_api_guide.py::test_examples",
    "tests/tasks/extensions/isolation/test_isolation.py::TestAnswers::test_it_may",
    "tests/tasks/extensions/isolation/test_isolation.py::TestEndings::test_what",
)  # fmt: skip
# Workers that are harmed where databases differ: how they lock, how a write is refused, whose turn it is.
HARMED = (
    "tests/faults/test_kill.py::test_no_object", "tests/faults/test_locks.py", "tests/faults/test_zombie.py",
    "tests/proofs/test_one_value.py", "tests/tasks/queue/test_claiming_processes.py",
)  # fmt: skip
# What gathers in a process what is written later.
GATHERING = (
    "stator.extensions.stats.gathered",
)  # fmt: skip
# The vendor of each mark.
VENDORS = {"postgresql": "postgresql", "sqlite": "sqlite", "mariadb": "mysql"}


def pytest_configure(config: pytest.Config) -> None:
    emptying.install()
    if is_citus() and not os.environ.get("CITUS_URL"):
        shapes.install()
        config.pluginmanager.register(shapes)
    TEST_DIRECTORY.mkdir(parents=True, exist_ok=True)
    template_databases.install()


def is_citus() -> bool:
    return capabilities_of(connection).name == "citus"


def pytest_unconfigure(config: pytest.Config) -> None:
    if not (hasattr(config, "workerinput") or config.getoption("reuse_db")):
        template_databases.remove()
        shutil.rmtree(TEST_DIRECTORY, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what ``bin/test`` wants to know."""
    tell(lines_on_browser(terminalreporter) + lines_on_proofs(terminalreporter), terminalreporter)


def tell(lines: list[str], terminalreporter: Any) -> None:
    """Write lines here and into the file that ``TOLD`` names."""
    for line in lines:
        terminalreporter.write_line(line)
    if lines and (told := os.environ.get("TOLD")):
        Path(told).write_text("".join(f"{line}\n" for line in lines))


def lines_on_browser(terminalreporter: Any) -> list[str]:
    """Say what became of the tests in a browser."""
    outcomes = {}
    for outcome in ("passed", "failed", "skipped", "error"):
        reports = terminalreporter.stats.get(outcome, ())
        outcomes[outcome] = [each for each in reports if getattr(each, "nodeid", "").startswith(BROWSER)]
    if not any(outcomes.values()):
        return []
    line = f"tests in a browser: {', '.join(f'{len(some)} {name}' for name, some in outcomes.items() if some)}"
    if outcomes["skipped"]:
        line += f" ({outcomes['skipped'][0].longrepr[2].removeprefix('Skipped: ')})"
    return [line]


def lines_on_proofs(terminalreporter: Any) -> list[str]:
    """Return the table of the proofs that were made, the failed ones too."""
    reports = [each for some in terminalreporter.stats.values() for each in some]
    failed = {each.nodeid for each in reports if getattr(each, "outcome", "") == "failed"}
    rows = {
        each.nodeid: row
        for each in reports
        for name, row in getattr(each, "user_properties", ())
        if name == "proof"
    }  # fmt: skip
    return table(("FAILED" if nodeid in failed else "ok", row) for nodeid, row in rows.items()) if rows else []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(ONCE):
            item.add_marker("once")
        if item.nodeid.startswith(FRAMEWORK):
            item.add_marker("framework")
        if item.nodeid.startswith(DATABASE):
            item.add_marker("database")
        if item.nodeid.startswith(HARMED):
            item.add_marker("harmed")
        if item.nodeid.startswith(RELEASE):
            item.add_marker("release")
    if not os.environ.get("RELEASE"):
        leave_to_releases(config, items)
    for item in of_newest(items):
        item.add_marker("newest")
    if near := os.environ.get("NEAR"):
        prefixes = tuple(Path(near).read_text().split())
        items[:] = nearest(items, [item for item in items if item.nodeid.startswith(prefixes)])
    if hasattr(config, "workerinput"):
        items[:] = mixed(items)


def pytest_collection_finish() -> None:
    """Look for garbage less often: what is collected stays, and to walk through it took a fifteenth of the time."""
    gc.set_threshold(20_000, 20, 20)


def leave_to_releases(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what only a release is tested with, but for files that the command names."""
    named = {Path(argument.split("::")[0]).resolve() for argument in config.args}
    left = [item for item in items if item.get_closest_marker("release") and item.path not in named]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def of_newest(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return what the newest versions are tested with: of what another run has, only the first test of each module."""
    here = [item for item in items if not (other_databases(item) or has_mark(item, "citus", "fault", "once"))]
    return nearest(here, [item for item in here if not has_mark(item, "database", "framework", "sqlite")])


def nearest(items: list[pytest.Item], named: list[pytest.Item]) -> list[pytest.Item]:
    """Return the named tests, and the first of each other module, so that all is imported and called."""
    taken = set(named)
    others = [item for item in items if item not in taken]
    # The last one of a module stays, which is the first since they are reversed.
    return [*named, *{item.path: item for item in reversed(others)}.values()]


def has_mark(item: pytest.Item, *names: str) -> bool:
    return any(map(item.get_closest_marker, names))


def other_databases(item: pytest.Item) -> list[str]:
    """Return the marks of the databases that a test is for, if this is none of them."""
    wanted = [mark for mark in VENDORS if item.get_closest_marker(mark)]
    return [] if connection.vendor in [VENDORS[mark] for mark in wanted] else wanted


@cache
def is_here(extension: str) -> bool:
    """Return whether an extension, or the queue, is not deleted (``bin/without``)."""
    return (ROOT / "tasks").is_dir() if extension == "queue" else bool(own_files(extension))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if wanted := other_databases(item):
        pytest.skip(f"for {' and '.join(wanted)} only")
    if item.get_closest_marker("citus") and not os.environ.get("CITUS_URL"):
        pytest.skip("CITUS_URL is not set")
    for name in (name for mark in item.iter_markers("needs") for name in mark.args if not is_here(name)):
        pytest.skip(f"the extension {name} is deleted")
    if (lacked := item.get_closest_marker("citus_lacks")) and is_citus():
        pytest.skip(f"Citus has no {lacked.args[0]}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Statistics that are not written yet are of a database that is emptied now."""
    for module in filter(None, map(sys.modules.get, GATHERING)):
        module.GATHERED.forget()


@pytest.fixture(autouse=True)
def no_attempt_runs() -> Iterator[None]:
    """A test may begin an attempt and not end it; the next one is not within that."""
    yield
    RUNNING.set(None)


@pytest.fixture
def subprocess_environment(transactional_db: None) -> dict[str, str]:
    """The environment in which a process works on the databases of this test."""
    return environment_for_subprocess()


@pytest.fixture
def worker_process(transactional_db: None) -> type[WorkerProcess]:
    """Starts workers on the databases of this test: ``with worker_process("testapp.Widget") as worker:``."""
    return WorkerProcess
