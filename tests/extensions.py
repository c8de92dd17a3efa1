"""The extensions of the framework as files of today: which are one's own, and which words spell it elsewhere.

``tests/test_core.py`` counts the lines of the core that spell an extension, and ``bin/without`` deletes one. An
extension that has a folder of its own (``stator/extensions/NAME``) needs no entry in ``FILES``, only its words.
"""

import ast
import fnmatch
import io
import re
import sys
import tokenize
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.parsing import tree_of

ROOT = Path(__file__).parent.parent
APPS = ("stator", "tasks")


@dataclass(frozen=True)
class Extension:
    """``files``: its own, as patterns. ``words``: the names that spell it; none if nothing but an import does.

    ``needs``: extensions that cannot be without it. ``tests``: what tests only it, as patterns. ``of_queue``: the queue
    is built on it and goes with it. ``pages``: what the addresses of its pages begin with.
    """

    files: str
    words: str = ""
    needs: str = ""
    tests: str = ""
    of_queue: bool = False
    pages: str = ""


# Many schemas, divided tables and the nodes of Citus are ways to have more than one scope (``stator/scopes.py``).
EXTENSIONS = {
    # Without words that the core has for other things: resting rows.
    "schemas": Extension(
        "stator/schemas.py",
        r"(?i)^(in_schemas?|schemas?|works_in_schemas|current_schema|follow_connections|send_in_schemas)$"
        r"|stator\.schemas|^resting_?schemas?$|extensions\.schemas",
        tests="tests/citus/test_schemas.py",
    ),
    # Without words that the core has for other things: a place in a line or a table. The column of ``spread`` is one of
    # the model, whatever divides its table: it begins the indexes, and says in which part (``shard``) a row is. Whether
    # a database ``has_nodes`` is one of its capabilities, and ``read_first`` a hint for any engine that has several.
    "slices": Extension(
        "stator/citus/*",
        r"(?i)^(slice_of|in_slices|freeslices|numberedslices|for_any_slice|is_on_node"
        r"|is_distributed|beside|by_place|in_place)$|^_?slices$|^_slice$|_slices?$|^slices_|citus|_on_nodes",
        tests="tests/citus/*",
    ),
    # Not each ``event``: a line of the log is one. What programs catch is in ``stator.exceptions`` together.
    "events": Extension(
        "stator/templates/stator/answer.html stator/templates/stator/admin/waiting.html "
        "stator/templates/stator/admin/answer_link.html stator/templates/stator/admin/events.html",
        r"^(AwaitedEvent|apply_event|with_events|events_of|Event|events|\w+\.event|event_names|awaited_events"
        r"|may_send|send_event\w*|on_event\w*)$",
        tests="tests/testapp/approvals.py",
    ),
    # Without words that the core has for other things: a worker waits, and ``awaited`` calls a coroutine.
    "related": Extension(
        "",
        r"^(Watch|watch(es|ers)(_of)?|_watches|watched|when_all|when_any|_?handed_on|HANDED_ON|_?if_handed_on"
        r"|is_awaited|waits_(of|for)|_?parked\w*|parking|postponing|reopen\w*|may_reopen)$",
        tests="tests/testapp/baskets.py",
        of_queue=True,
    ),
    # Without words that tests have for other things: a model of their app, and its rows.
    "steps": Extension(
        "",
        r"^(Steps|(?!test)(\w+\.)+(Step|steps)|steps_of\w*|steps_used|own_steps|forget_steps|stepped|MAX_STEPS"
        r"|STEP_\w+)$",
    ),
    "progress": Extension(
        "",
        r"^(\w+_progress|progress_of|Progress|Reached)$",
    ),
    # What programs catch is in ``tasks.exceptions`` together.
    "pauses": Extension(
        "stator/templates/stator/admin/end_pause.html stator/templates/stator/admin/pause_notice.html",
        r"(?i)(?<!queue)pause|resume",
    ),
    # What shows queues shows their pauses, so the admin, the commands and the API of tasks need it.
    "queue_pauses": Extension("", r"(publish|claim)(ing)?_paused|^pause_\w+$"),
    "reconcile": Extension(
        "",
        r"reconcile|watched_(fields|values)|_loaded_watched",
    ),
    # The setting HISTORY_RETENTION is also that of the actions of people.
    "reports": Extension(
        "",
        r"^(history|History|Report|report_of|HISTORY(?!_RETENTION)\w*|REPORTED|ERROR_HISTORY|erred|reported|error_of"
        r"|logged|AttemptLog|keep_logs|logs|attempt_log)$|extensions\.reports",
        pages="/admin/stator/history/ /admin/stator/report/",
    ),
    "stats": Extension(
        "",
        r"^(Stats|Depth|sample_depths|merge_stats|thin|SAMPLE|stator_stats)$",
    ),
    # Not the concurrency of a worker.
    "limits": Extension("", r"^((state|source)\.concurrency|Limit|concurrency_limits)$"),
    "model_rules": Extension(""),
    "partitions": Extension(
        "",
        r"^Distribute$|(?<!has_)partitions|partitioned|partition_|Partition",
        needs="slices",
    ),
    "refusals": Extension(
        "",
        r"(?i)refusals$",
    ),
    "fleet": Extension(
        "",
        r"^(Fleet|process_exits|orphaned|fingerprints?_of|[Pp]resence)$|extensions\.fleet",
    ),
    # Not the isolation of transactions. Objects that lost many leases run alone without it too, in their worker.
    "isolation": Extension(
        "",
        r"(?i)isolated|crash_?isolation|process_?isolation|isolationerror|extensions\.isolation",
        tests="tests/testapp/isolated.py",
    ),
    "processes": Extension(
        "",
        r"(?i)supervis|reload|beside_runserver|RUNSERVER_WORKER",
    ),
    # Its setting says how long a loop may hang; the endpoint and isolated processes ask it too.
    "watchdog": Extension("", r"[Ww]atchdog|(?i:liveness)"),
    "metrics": Extension(
        "stator/metrics.py",
        r"(?i)metrics|prometheus|^measures$|Endpoint$",
        needs="views problems",
    ),
    "tracing": Extension("", r"(?i)tracing|traced"),
    "adopt": Extension("", r"^adopts$"),
    "shadow": Extension("", r"^(in_shadow|put_in_shadow)$"),
    "undo": Extension(
        "stator/undo.py stator/templates/stator/admin/undo_notice.html",
        r"^(undo|undone|undoing|Undo\w*|Before|UNDONE_WITHIN)$|stator\.undo",
    ),
    "guard": Extension(
        "stator/strict_fence.py",
        r"guard|^unsaved$|(?i:strict_?fence)",
    ),
    # The paths that migrations name stay, and with them what our own migrations use. Not the former name of a state:
    # workers give its rows the new one without any migration.
    "migrating": Extension(
        "stator/management/autodetector.py",
        r"^(RenameState|RemoveState|RemapState|RenameRecords|FillStates|KeepDueTimes|StateChanges|[Aa]utodetector)$",
        tests="tests/stator/management/test_autodetector.py tests/stator/test_migration_operations_renames.py "
        "tests/stator/test_migration_operations_states.py tests/stator/test_adoption.py",
    ),
    "problems": Extension(
        "",
        r"^(explain\w*|ProblemKind|Survey\w*|surveys|add_problem_kind|problems_in|prospects)$"
        r"|(?i:doctor|unserved)",
        tests="tests/stator/explain/* tests/stator/commands/doctor/* tests/stator/commands/test_explain* "
        "tests/stator/commands/test_status* tests/operating/* tests/tasks/diagnosis/* "
        "tests/tasks/queue/test_unserved.py",
    ),
    "overview": Extension(
        "stator/admin_site/* stator/static/stator/overview.js stator/templates/stator/admin/line.html "
        "stator/templates/stator/admin/overview.html stator/templates/stator/admin/overview_live.html "
        "stator/templates/stator/admin/overview_model.html stator/templates/stator/admin/overview_problem*.html "
        "stator/templates/stator/admin/overview_schemas.html stator/templates/stator/admin/overview_workers.html "
        "stator/templates/stator/admin/search_form.html stator/templates/stator/admin/state_bar.html",
        r"^(Overview|[Ss]parkline|shown_problem|Minutes|minutes_of|[Ss]tays|flows)$|admin_site",
        needs="admin problems",
        pages="/admin/stator/overview/",
    ),
    "pictures": Extension(
        "stator/templates/stator/graph.svg stator/templates/stator/admin/graph.svg "
        "stator/templates/stator/admin/model_graph.svg",
        r"(?i)layout|drawing|picture|mermaid|graphviz",
    ),
    "admin": Extension(
        "stator/admin/* stator/templates/stator/admin/* stator/static/stator/*",
        r"^(stator\.admin.*|StatorAdmin|ManagedList|add_section)$",
        tests="tests/stator/admin/* examples/*/admin.py",
        pages="/admin/",
    ),
    "check_graph": Extension(
        "stator/testing_graph/*", r"check_graph|testing_graph", tests="tests/stator/test_testing_graph.py"
    ),
    "views": Extension(
        "stator/views.py stator/urls.py", r"RequestRunner|stator\.views", tests="tests/stator/test_views*"
    ),
    "api": Extension(
        "tasks/api/* tasks/templates/admin/tasks/consumer/*",
        r"^(tasks\.api.*|Consumer|consumers?)$",
        needs="queue_pauses",
        tests="tests/tasks/api/* tests/tasks/serving.py tests/tasks/admin/test_consumers.py",
        pages="/api/",
    ),
    "client": Extension("tasks/client/*", r"^tasks\.client.*", tests="tests/tasks/client/*"),
    # The loop is the client's too, whose folder is copied.
    "consume": Extension(
        "tasks/queue/consuming.py", r"(?i)^a?consume$|QueueLoop|^Consumes$|queue\.consuming", needs="client"
    ),
    "backend": Extension(
        "tasks/backend/*",
        r"^tasks\.backend.*|StatorBackend",
        tests="tests/tasks/backend/* tests/testapp/tasks.py",
    ),
    # Without words that the core has for other things: a turn of a worker's scheduler is a tick, and ``schedule`` is an
    # option of other queues and the thread of that scheduler.
    "schedules": Extension(
        "tasks/periodic.py tasks/templates/admin/tasks/schedule/*",
        r"^(Schedule([A-Z]\w*)?|[Ss]chedules|Tick|TICK_\w+|tick(s|ing|_index))$|(?<!on)_schedules?$|(?i:periodic|cron)",
        tests="tests/tasks/schedules/* tests/tasks/ticker/* tests/tasks/*/test_schedules.py tests/proofs/test_ticks.py",
    ),
    "batches": Extension(
        "tasks/admin/batches.py tasks/api/batches.py",
        r"^(Batch|BatchGraph|batch_id|open_batch|BATCH_KEY|first_failure\w*)$|extensions\.batches",
        tests="tests/tasks/admin/test_batches.py",
    ),
    "shared": Extension("", r"(?i)worker_count|^(of|un)?shared|^is_part|^open_part|parts_of_task|^whole(_id)?$"),
    "throttles": Extension(
        "",
        r"^(ActionRate|ActionSlot|UsedLimit|put_off|rate|frequency|throttle)$|extensions\.throttles",
        tests="tests/operating/test_limits.py tests/testapp/throttled.py",
    ),
    # Errored tasks are dead letters of the core, whether or not somebody is told.
    "notices": Extension("tasks/dead_letters.py", r"^(DeadLetter|send_notices|notice_due)$|tasks\.dead_letters"),
    "tasks_admin": Extension(
        "tasks/admin/*",
        r"^tasks\.admin.*",
        needs="admin queue_pauses",
        tests="tests/tasks/admin/*",
        pages="/admin/tasks/",
    ),
    "tasks_commands": Extension(
        "tasks/commands/* tasks/management/*",
        r"^tasks\.commands.*",
        needs="queue_pauses",
        tests="tests/tasks/commands/* tests/tasks/*/test_tasks_commands.py",
    ),
}

# How a line names the folder of an extension.
FOLDER = re.compile(rf"\b(?:{'|'.join(APPS)})\.extensions\.\w")

# Files that are neither an extension nor the core: what a vendor replaces, and what people look at.
ENGINES = (
    "stator/db/claims_postgresql.py stator/db/records_postgresql.py stator/db/postgresql.py stator/db/compiler.py "
    "stator/db/session.py stator/db/sql.py stator/db/program_claims.py stator/db/inserts.py "
    "stator/db/kept_statements.py stator/worker/listener.py stator/db/sqlite.py stator/db/files.py stator/db/mysql.py "
    "stator/db/generated.py"
)
# The tables that list extensions.
TABLES = "stator/db/effect_table.py"
SURFACES = (
    "stator/adoption.py stator/migration_operations.py stator/table_operations.py "
    "stator/checks/* stator/commands/* stator/draining.py stator/explain.py stator/extending.py stator/management/* "
    "stator/survey/* tasks/queue/figures.py tasks/queue/latest_errors.py tasks/queue/paces.py tasks/queue/serving.py "
    "stator/db/bounded_counts.py stator/db/looks.py stator/rows/problem.py "
    "stator/terminal.py stator/testing.py "
    "stator/pytest_plugin.py stator/db/search_lookups.py stator/db/engines.py stator/db/tables.py "
    "stator/rows/unlocks.py stator/rows/due_times.py stator/rows/record_tables.py tasks/testing.py"
)

# The extensions that are deleted for the name of several together, or of a part.
TOGETHER = {
    "migrations": ("migrating",),
    "scopes": ("schemas", "slices"),
    "watches": ("related",),
    "waits": ("related",),
    # All at once: the framework alone, and with the queue, which waits for what its tasks depend on.
    "everything": tuple(EXTENSIONS),
    "everything-but-the-queue": tuple(name for name, one in EXTENSIONS.items() if not one.of_queue),
}


def matches(path: str, patterns: str) -> bool:
    """Return whether one of the patterns, divided by spaces, matches a path below the root."""
    return any(fnmatch.fnmatch(path, pattern) for pattern in patterns.split())


def own_files(name: str) -> list[Path]:
    """Return the files of an extension, its folders and templates with them."""
    extension = EXTENSIONS.get(name)
    return _files(APPS, f"*/extensions/{name}/* {extension.files if extension else ''}")


def own_tests(name: str) -> list[Path]:
    """Return what tests an extension alone: its folders, ``test_NAME.py`` of others for it, what must lie elsewhere."""
    extension, folders = EXTENSIONS.get(name), f"tests/*/extensions/{name}/* tests/*/extensions/*/test_{name}.py"
    return _files(("tests", "examples"), f"{folders} {extension.tests if extension else ''}")


def _files(folders: tuple[str, ...], patterns: str) -> list[Path]:
    return [ROOT / name for each in folders for name in _names_below(each) if matches(name, patterns)]


@cache
def _names_below(folder: str) -> list[str]:
    """Return the files in a folder of the checkout, as paths below its root."""
    paths = (path for path in sorted((ROOT / folder).rglob("*")) if "__pycache__" not in path.parts)
    return [path.relative_to(ROOT).as_posix() for path in paths if path.is_file()]


@cache
def core_files() -> list[Path]:
    """Return the modules of the framework's core, the queue's core, and the engine for PostgreSQL."""
    others = " ".join(extension.files for extension in EXTENSIONS.values())
    away = f"*/migrations/* */extensions/* stator/batteries.py {others} {SURFACES} {TABLES}"
    engines = " ".join(name for name in ENGINES.split() if re.search("sqlite|mysql|files|generated", name))
    found = (path for app in APPS for path in sorted((ROOT / app).rglob("*.py")))
    return [path for path in found if not matches(path.relative_to(ROOT).as_posix(), f"{away} {engines}")]


def spelled(path: Path, words: str) -> int:
    """Return how many lines of code spell one of the words: a line that has one, and definitions with such a name.

    A line that names the folder of an extension goes with it (``bin/without``), so it is not counted.
    """
    pattern, (names, defined, code) = re.compile(words), _lines(path)
    lines = {line for line, said in names.items() if any(map(pattern.search, said))}
    for name, definition in defined:
        if pattern.search(name):
            lines.update(definition)
    return len(lines & code)


@cache
def _lines(path: Path) -> tuple[dict[int, set[str]], list[tuple[str, range]], set[int]]:
    """Return the names and words of strings in each line, what is defined where, and the lines of code that count."""
    names, defined, code, documented = defaultdict(set), [], set(), _docstrings(tree_of(path))
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    root = owner = dot = ""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        # An event of ``threading`` is none of ours, and our module ``stator.logs`` is named as a whole.
        root = root if "." in (dot, token.string) else token.string
        of_module = dot == "." and root in {*sys.stdlib_module_names, "django", *APPS}
        named = f"{owner}.{token.string}" if dot == "." else token.string
        owner, dot = dot, token.string
        if token.type in blank or token.start[0] in documented or of_module:
            continue
        code.update(range(token.start[0], token.end[0] + 1))
        for line, text in enumerate(token.string.splitlines(), token.start[0]):
            # A whole number is no task with parts. Also the parts of dotted names: since Python 3.12 what stands in an
            # f-string are tokens of their own.
            for word in re.findall(r"(?!whole number)[A-Za-z_][\w.]*", text):
                names[line].update((word, *word.split(".")))
        names[token.start[0]].add(named)
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names[node.lineno].update((node.module, *(f"{node.module}.{one.name}" for one in node.names)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.append((node.name.strip("_"), range(node.lineno, (node.end_lineno or node.lineno) + 1)))
    going = {at for at, line in enumerate(path.read_text().splitlines(), 1) if FOLDER.search(line)}
    return names, defined, code - going


def _docstrings(tree: ast.Module) -> set[int]:
    found: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                found.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return found
