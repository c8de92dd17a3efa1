"""Tools for all benchmarks: a database, tables, CPU time of worker and server, and a printed table."""

import argparse
import contextlib
import os
import platform
import resource
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import django
import psycopg
from django.apps import apps
from django.db import connection

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.settings")

# Default durability. A server that has run for a while has WAL files to reuse. Here they are created beforehand, 16 MB
# each, so that commits need not wait for the next one during the benchmark. A distribution's server keeps its defaults.
SERVER = {"shared_buffers": "512MB", "min_wal_size": "1GB"}
LOG_FILES = 60
TICKS = os.sysconf("SC_CLK_TCK")
MARIADB = {"innodb_buffer_pool_size": "512M", "innodb_log_file_size": "1G"}


@contextlib.contextmanager
def database(kind: str = "postgresql") -> Iterator[None]:
    """Connect to ``DATABASE_URL``, or to a temporary PostgreSQL with default durability.

    ``kind``: "sqlite" or "mariadb" for a temporary file or server of that kind, whatever the environment says.
    """
    with contextlib.ExitStack() as stack:
        if kind == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stator-bench-"))
            os.environ["DATABASE_URL"] = f"sqlite:///{folder}/bench.sqlite3"
        elif kind == "mariadb":
            from tests.servers import mariadb

            os.environ["DATABASE_URL"] = stack.enter_context(mariadb.temporary_server(MARIADB)).url()
        else:
            os.environ["DATABASE_URL"] = stack.enter_context(server())
        django.setup()
        if connection.vendor != {"mariadb": "mysql"}.get(kind, kind):
            raise SystemExit("this benchmark needs PostgreSQL; set DATABASE_URL to one, or unset it to have one made")
        from stator.worker.startup import collect_rarely

        # ``runstator`` does this too.
        collect_rarely()
        yield
        connection.close()


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Yield ``DATABASE_URL``, or the URL of a temporary PostgreSQL with default durability."""
    if url := os.environ.get("DATABASE_URL"):
        yield url
        return
    from tests.servers.postgres import temporary_server
    from tests.servers.postgres.programs import given_programs

    with temporary_server({} if given_programs() else SERVER) as made:
        made.create_database("stator")
        _make_log_files(made.dsn)
        yield made.url("stator")


def _make_log_files(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as server:
        for _ in range(LOG_FILES):
            server.execute("SELECT pg_logical_emit_message(false, 'stator', ''), pg_switch_wal()")
        # After a checkpoint the files can be reused.
        server.execute("CHECKPOINT")


def make_tables(*models: Any) -> None:
    """Create empty tables for the models, and the framework's tables."""
    from django.core.management import call_command
    from django.db.migrations.state import ProjectState

    from stator.db.generated import complete
    from stator.migration_operations import StorageParameters

    call_command("migrate", verbosity=0)
    existing, state = set(connection.introspection.table_names()), ProjectState.from_apps(apps)
    with connection.schema_editor() as editor:
        for model in models:
            if model._meta.db_table in existing:
                editor.delete_model(model)
            editor.create_model(model)
            complete(model, "default")
            # The advice of docs/guides/operating.rst for tables with constant updates.
            half = StorageParameters(model._meta.model_name, {"fillfactor": 50}, key={"fillfactor": 50})
            half.database_forwards(model._meta.app_label, editor, state, state)


def apply(operation: Any, *, backwards: bool = False) -> None:
    """Apply an operation of a migration of the benchmarks, or reverse it."""
    from django.db.migrations.state import ProjectState

    state = ProjectState.from_apps(apps)
    with connection.schema_editor(atomic=False) as editor:
        change = operation.database_backwards if backwards else operation.database_forwards
        change("benchmarks", editor, state, state)


def fill(model: Any, rows: int, values: Mapping[str, str] | None = None) -> None:
    """Replace the content of a model's table by ``rows`` new rows, as fast as the database can."""
    # Values of the model's own columns, by the number of the row.
    own = {"payload": "'x'", "shard": "n %% 32", **(values or {})}
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            names = [field.name for field in model._meta.fields if field.name in own]
            column, value = "".join(f", {name}" for name in names), "".join(f", {own[name]}" for name in names)
            ready = bool(model.state_graph.initial_state.automatic)
            cursor.execute(f"TRUNCATE {model._meta.db_table} RESTART IDENTITY")
            cursor.execute(
                f"INSERT INTO {model._meta.db_table} (state, state_ready{column})"
                f" SELECT 'new', %s{value} FROM generate_series(1, %s) n",
                [ready, rows],
            )
            cursor.execute(f"VACUUM (ANALYZE) {model._meta.db_table}")
            return
    model.objects.all().delete()
    for start in range(0, rows, 5000):
        model.objects.bulk_create(model() for _ in range(min(5000, rows - start)))


def psycopg_parameters(connection: Any) -> dict[str, Any]:
    """Return Django's connection parameters in psycopg's form."""
    given = connection.get_connection_params()
    return {name: given[name] for name in ("dbname", "user", "password", "host", "port") if given.get(name)}


def own_cpu() -> float:
    """Return the CPU seconds of this process so far."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def server_cpu() -> float:
    """Return the CPU seconds of all processes of the connected server so far; 0 if they cannot be read."""
    if connection.vendor == "sqlite" or not Path("/proc/self/stat").exists():
        return 0.0
    if connection.vendor == "mysql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@pid_file")
            return sum(_stat(int(Path(cursor.fetchone()[0]).read_text()))[11:13]) / TICKS
    return cpu_of_server(connection)


def cpu_of_server(connected: Any) -> float:
    """Return the CPU seconds of all processes of the PostgreSQL of a connection so far."""
    with connected.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        postmaster = _stat(cursor.fetchone()[0])[1]
    # The parent's own values include ended backends (fields 16 and 17 of proc(5)'s stat).
    own = _stat(postmaster)
    total = sum(own[11:15])
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))) and fields[1] == postmaster:
            total += sum(fields[11:13])
    return total / TICKS


def _stat(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return []
    fields = text.rpartition(")")[2].split()
    return [0, *(int(field) for field in fields[1:])]


def arguments(
    description: str | None,
    quick: dict[str, int],
    extend: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
    **defaults: int,
) -> argparse.Namespace:
    """Parse command-line options with whole-number defaults, and ``--repeat``; ``extend`` adds other options.

    ``quick``: the defaults with ``--quick``, which runs everything once with small sizes, to see that it works.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, once: to see that it runs, not to measure")
    full = {"repeat": 3} | defaults
    for name, value in full.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=_positive, metavar="N", help=f"{value} by default")
    extend(parser)
    options = parser.parse_args()
    for name, value in (full | ({"repeat": 1} | quick if options.quick else {})).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return int(text)


def spread(values: list[float], digits: int = 0) -> str:
    """Return ``median (least-most)``."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f}-{high:,.{digits}f})"


def print_table(title: str, head: list[str], rows: list[list[str]]) -> None:
    """Print one table, with the versions it was measured with."""
    print(f"\n{title}\n{versions()}")
    print_lines(head, rows)


def print_lines(head: list[str], rows: list[list[str]]) -> None:
    """Print columns as wide as their widest cell."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    for row in [head, ["-" * width for width in widths], *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def versions() -> str:
    """Return the versions of Python, Django and the database in one line."""
    database_version = ".".join(str(part) for part in connection.get_database_version())
    return (
        f"Python {platform.python_version()}, Django {django.get_version()}, "
        f"{connection.vendor} {database_version}, {os.cpu_count()} processors"
    )
