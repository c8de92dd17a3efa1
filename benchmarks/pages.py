"""How long the pages of the admin take in large tables: every filter, order, search and page.

``python -m benchmarks.pages [--rows 1000000] [--kept 1000000] [--queues 200] [--repeat 3] [--main] [--only WORDS]``
"""

import argparse
import html
import json
import os
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.site")
os.environ.setdefault("LOG_LEVEL", "ERROR")
os.environ.setdefault("SECRET_KEY", "for benchmarks")

from benchmarks.harness import arguments, database, make_tables, print_table, spread
from benchmarks.report import note, print_targets, verdict, watch

# The most milliseconds that a page may take, and the most kilobytes that it may have.
MAX_MILLISECONDS = 300
MAX_KB = 300
# How many pages are printed, the slowest first; of how many of them statements are, how many, and their characters.
SHOWN, EXAMINED, STATEMENTS, LONG = 30, 3, 5, 150
# Models on the site, of which each has statistics.
MODELS = 12
# Live workers.
WORKERS = 8

LISTS = (
    "benchmarks/pageitem", "benchmarks/awaitingitem", "tasks/task", "tasks/run", "tasks/schedule", "tasks/queue",
    "tasks/consumer", "stator/history", "stator/report", "stator/stats", "stator/depth", "stator/worker",
    "stator/pause",
)  # fmt: skip
# Search terms with no, few and many matches.
SEARCHES = {
    "benchmarks/pageitem": ("no such name", "item 77", "item"),
    "tasks/task": ("no such thing", "rare", "resize", "key-77", "77"),
    "tasks/run": ("nobody", "bot-7"),
    "tasks/schedule": ("nothing", "entity-77", "nightly"),
    "stator/history": ("nothing", "77", "benchmarks.pageitem 77", "benchmarks.pageitem", "ada"),
    "stator/report": ("nothing", "77", "benchmarks.pageitem 77", "ValueError"),
    "stator/stats": ("nothing", "benchmarks.pageitem"),
    "stator/depth": ("nothing", "benchmarks.pageitem"),
}
# The list of objects, a hundred a page.
LISTED = f"/admin/{LISTS[0]}/"
LINK = re.compile(r'href="(\?[^"]*)"')

# States of a table with only a few problems, hard to find, and of a table where most rows have one.
WELL = """CASE WHEN n <= 5 THEN 'lost' WHEN n <= 700 THEN 'new' WHEN n % 100 = 0 THEN 'new'
  WHEN n % 100 < 20 THEN 'checked' WHEN n % 1000 = 21 THEN 'failed' ELSE 'done' END"""
ILL = "CASE WHEN n % 10 < 5 THEN 'new' WHEN n % 10 < 8 THEN 'checked' WHEN n % 10 = 8 THEN 'lost' ELSE 'done' END"


@dataclass(frozen=True, slots=True)
class View:
    """One request: milliseconds elapsed, of the site's and the server's processors, and in statements; kilobytes.

    ``sent``: its statements, each with its milliseconds.
    """

    wall: float
    own: float
    server: float
    sql: float
    statements: int
    size: float
    sent: list[tuple[float, str]]


def main() -> None:
    """Measure and print."""
    quick = {"rows": 2000, "kept": 2000, "queues": 20}
    options = arguments(__doc__, quick=quick, extend=_which, rows=1_000_000, kept=1_000_000, queues=200)
    with database():
        make()
        fill_kept(options.kept, options.queues)
        client = logged_in()
        found: dict[str, list[View]] = {}
        for name, fill in FILLS.items():
            fill(options.rows)
            further = lists(client) if name == "a few stuck" else links(client, LISTS[0])
            for path in [*([LISTED] if options.main else further), *others()]:
                if options.only in path:
                    measured(client, path)
                    found[f"{name}: {title(path)}"] = [measured(client, path) for _ in range(options.repeat)]
    medians = {page: statistics.median(one.wall for one in views) for page, views in found.items()}
    slowest = sorted(found, key=lambda page: -medians[page])
    print_table(
        f"{len(found)} pages with {options.rows:,} objects, {options.kept:,} rows of each list and {options.queues:,} "
        "queues; the slowest of them. Milliseconds: median (least-most)",
        ["page", "all", "processor, site", "processor, database", "in statements", "statements", "kB"],
        [[page, *_columns(found[page])] for page in slowest[:SHOWN]],
    )
    for page in slowest[:EXAMINED]:
        print_statements(page, found[page])
    for page, views in found.items() if options.main else ():
        note(f"{page}: ms", medians[page], less=True)
        note(f"{page}: processors, ms", statistics.median(one.own + one.server for one in views), less=True)
        note(f"{page}: statements", max(one.statements for one in views), less=True)
    over = sum(median > MAX_MILLISECONDS for median in medians.values())
    sizes = {page: max(one.size for one in views) for page, views in found.items()}
    largest = max(sizes, key=lambda page: sizes[page])
    print_targets([
        verdict("slowest page, median in ms", medians[slowest[0]], MAX_MILLISECONDS, most=True),
        f"pages over {MAX_MILLISECONDS} ms: {over} of {len(found)}",
        verdict(f"largest page, {largest}, in kB", sizes[largest], MAX_KB, most=True),
    ])  # fmt: skip


def print_statements(page: str, views: list[View]) -> None:
    """Print the slowest statements of a page, by the least time of each; a page sends the same ones each time."""
    if len({one.statements for one in views}) > 1:
        views = views[-1:]
    least = [min(sent, key=lambda each: each[0]) for sent in zip(*(one.sent for one in views), strict=True)]
    print(f"\nSlowest of {len(least)} statements of {page}, ms")
    for took, text in sorted(least, reverse=True)[:STATEMENTS]:
        print(f"{took:8.1f}  {' '.join(text.split())[:LONG]}")


def _which(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", metavar="WORDS", help="only pages whose address has these words")
    parser.add_argument("--main", action="store_true", help="of the lists, only that of objects, without its links")


def _columns(views: list[View]) -> Iterator[str]:
    for name in ("wall", "own", "server", "sql"):
        yield spread([getattr(one, name) for one in views])
    yield str(max(one.statements for one in views))
    yield f"{max(one.size for one in views):,.0f}"


def make() -> None:
    """Create the tables, and leave only ``MODELS`` models on the site."""
    from stator.models import StatorModel
    from stator.rows.meta import managed

    ours = [model for model in managed(StatorModel.subclasses) if model._meta.app_label != "benchmarks"]
    mine = [model for model in StatorModel.subclasses if model._meta.app_label == "benchmarks"]
    make_tables(*mine)
    mine.sort(key=lambda model: f"benchmarks/{model._meta.model_name}" not in LISTS)
    StatorModel.subclasses[:] = [*ours, *mine][:MODELS]


def logged_in() -> Any:
    """Return a client that is logged in as a superuser."""
    from django.contrib.auth.models import User
    from django.test import Client

    User.objects.filter(username="benchmark").delete()
    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.create_superuser("benchmark"))
    return client


def measured(client: Any, path: str) -> View:
    """Return what a request of an existing page takes; nothing is counted before."""
    from django.db import connection

    from stator.extensions.events.admin.inbox import counts

    counts.forget()
    took: list[tuple[float, str]] = []

    def timed(execute: Callable[..., Any], sql: object, *given: Any) -> Any:
        started = time.perf_counter()
        try:
            return execute(sql, *given)
        finally:
            took.append((1000 * (time.perf_counter() - started), str(sql)))

    with watch() as spent, connection.execute_wrapper(timed):
        response = client.get(path)
    if response.status_code != 200:
        raise SystemExit(f"{path} gives {response.status_code}")
    wall, own, server = (1000 * each for each in (spent.seconds, spent.own, spent.server))
    return View(wall, own, server, sum(each for each, _ in took), len(took), len(response.content) / 1000, took)


def lists(client: Any) -> Iterator[str]:
    """Yield every list and its links."""
    for name in LISTS:
        yield from links(client, name)


def links(client: Any, name: str) -> Iterator[str]:
    """Yield a list, its links, and searches in it."""
    path = f"/admin/{name}/"
    yield path
    text = client.get(path).content.decode()
    yield from (
        path + html.unescape(link)
        for link in dict.fromkeys(LINK.findall(text))
        if link not in ("?", "?_popup=1") and "stator_as=" not in link
    )
    yield from (f"{path}?q={words}".replace(" ", "+") for words in SEARCHES.get(name, ()))


def others() -> Iterator[str]:
    """Yield the overview, and pages of single objects."""
    from benchmarks.models import PageItem
    from tasks.models import Queue, Task

    overview = "/admin/stator/overview/"
    yield from ("/admin/", overview, f"{overview}?live=1", f"{overview}?period=month", "/admin/stator/event/waiting/")
    yield from (f"{overview}?model=benchmarks.pageitem{more}" for more in ("", "&live=1"))
    models: tuple[Any, ...] = (PageItem, Task, Queue)
    for model in models:
        pks = model.objects.order_by("pk").values_list("pk", flat=True)
        for pk in [*pks[:1], *pks[77:78]]:
            page = f"/admin/{model._meta.app_label}/{model._meta.model_name}/{pk}"
            yield f"{page}/change/"
            yield f"{page}/change/?period=month" if model is Queue else f"{page}/stator/"


def title(path: str) -> str:
    """Return the address in readable form."""
    return unquote_plus(path.removeprefix("/admin/"))


def insert(model: Any, rows: int, emptied: bool = True, /, **values: str) -> None:
    """Insert ``rows`` rows into a table; ``values``: SQL expressions with ``n``, the number of the row."""
    from django.db import connection

    table = model._meta.db_table
    given = {**_fillers(model), **values}
    names, expressions = ", ".join(f'"{name}"' for name in given), ", ".join(given.values())
    with connection.cursor() as cursor:
        if emptied:
            cursor.execute(f"TRUNCATE {table} RESTART IDENTITY CASCADE")
        cursor.execute(f"INSERT INTO {table} ({names}) SELECT {expressions} FROM generate_series(1, {rows}) AS t(n)")
        cursor.execute(f"VACUUM (ANALYZE) {table}")


def _fillers(model: Any) -> dict[str, str]:
    """Return an SQL value for each column that needs one and has no default."""
    kinds = {
        "CharField": "''",
        "TextField": "''",
        "BooleanField": "false",
        "JSONField": "'{}'",
        "DateTimeField": "now()",
    }
    return {
        field.column: kinds.get(field.get_internal_type(), "0")
        for field in model._meta.concrete_fields
        if not (field.null or field.has_db_default() or field.primary_key)
    }


def fill_well(rows: int) -> None:
    """Create objects; few of them are stuck, unknown, failing, leased, overdue or quarantined."""
    _workers("resize")
    _objects(
        rows,
        state=WELL,
        state_ready="n BETWEEN 500 AND 550",
        state_changed="now() - CASE WHEN n <= 10 THEN interval '2 days' WHEN n <= 700 OR n % 100 = 0 THEN "
        "interval '1 minute' ELSE n % 1000 * interval '30 minutes' END",
        state_failures="CASE WHEN n BETWEEN 100 AND 200 THEN 2 ELSE 0 END",
        state_crashes="CASE WHEN n BETWEEN 201 AND 210 THEN 3 ELSE 0 END",
        state_next_attempt="CASE WHEN n % 100 = 0 OR n <= 500 THEN now() + interval '1 day' WHEN n < 530 THEN "
        "now() - interval '1 hour' WHEN n <= 550 THEN now() + interval '1 day' END",
    )


def fill_ill(rows: int) -> None:
    """Create objects; many of them have one of these problems, and no worker has the action of the tasks."""
    _workers("shrink")
    _objects(
        rows,
        state=ILL,
        state_ready="n % 10 IN (0, 1)",
        state_changed="now() - n % 1000 * interval '3 hours'",
        state_failures="CASE WHEN n % 10 = 2 THEN 2 ELSE 0 END",
        state_crashes="CASE WHEN n % 10 = 3 THEN 3 ELSE 0 END",
        state_next_attempt="CASE WHEN n % 10 IN (2, 3, 4) THEN now() + interval '1 day' END",
    )


def _objects(rows: int, **values: str) -> None:
    from django.db import connection

    from benchmarks.models import PageItem

    insert(PageItem, rows, name="'item ' || n", **values)
    with connection.cursor() as cursor:
        cursor.execute(f"""
            UPDATE {PageItem._meta.db_table} SET state_claim = gen_random_uuid(), state_attempted = now(),
              state_locked_until = now() + interval '1 hour' WHERE id BETWEEN 551 AND 650 AND state = 'new'""")


FILLS = {"a few stuck": fill_well, "nothing well": fill_ill}


def fill_kept(rows: int, queues: int) -> None:
    """Create tasks, claims and schedules, what waits for people, and the framework's rows beside them."""
    from benchmarks.models import AwaitingItem
    from stator.models import Depth, History, Report, Stats
    from tasks.models import Queue, Run, Schedule, Task

    insert(AwaitingItem, rows, state="'new'", state_ready="false", state_changed="now() - n * interval '1 second'")
    insert(Queue, queues, name="'queue-' || n", kind="'simple'")
    insert(
        Task, rows, queue_id=f"1 + n % {queues}", worker_ids="'[]'", worker_count="1", priority="n", key="'key-' || n",
        action="CASE WHEN n = 77 THEN 'rare' ELSE 'resize' END",
        state=f"CASE WHEN n <= {rows} / 50 THEN 'pending' WHEN n % 100 = 1 THEN 'errored' ELSE 'completed' END",
        state_ready=f"n <= {rows} / 50", state_changed="now() - n * interval '1 second'",
    )  # fmt: skip
    insert(
        Run, rows, task_id="n", worker="'bot-' || n % 100", token="gen_random_uuid()", lease_until="now()",
        outcome="CASE WHEN n % 1000 = 0 THEN 'failed' WHEN n = 77 THEN '' ELSE 'succeeded' END", ended="now()",
    )  # fmt: skip
    insert(
        Schedule, rows // 10, name="'nightly'", entity="'entity-' || n", period="3600", enabled="true",
        zone="'UTC'", missed="'one'", state="'waiting'", state_ready="false",
        state_next_attempt="now() + n * interval '1 second'",
    )  # fmt: skip
    own = {"model_label": "'benchmarks.pageitem'", "object_pk": "'' || n"}
    insert(
        History, rows, **own, kind="CASE WHEN n % 1000 = 0 THEN 'hand' WHEN n % 50 = 0 THEN 'error' ELSE 'move' END",
        at=f"now() - ({rows} - n) * interval '1 second'", source="'new'", to="'checked'",
        actor="CASE WHEN n % 1000 = 0 THEN 'ada' ELSE '' END",
    )  # fmt: skip
    error = {"error": "'ValueError'", "message": "'no such street'", "fingerprint": "md5((n % 50)::text)::varchar(16)"}
    insert(Report, rows, **own, **error, state="'new'", times="1", at="now() - n * interval '1 second'")
    labels = _labels()
    label = f"('{{{','.join(labels)}}}'::text[])[1 + n % {MODELS}]"
    hours = f"date_trunc('hour', now()) - (n / {2 * MODELS}) * interval '1 hour'"
    insert(Stats, max(20, rows // 10), model_label=label, hour=hours, source="'new'",
           to=f"'checked' || n % {2 * MODELS}", handled="100 + n % 77", failed="n % 7")  # fmt: skip
    # The last two days by minutes, older ones by hours, as workers store them.
    back = f"least(n / {MODELS}, 2880) * interval '1 minute' + greatest(n / {MODELS} - 2880, 0) * interval '1 hour'"
    insert(Depth, max(20, rows // 10), model_label=label, minute=f"date_trunc('minute', now()) - ({back})",
           queued="n % 1000", hourly=f"n / {MODELS} > 2880")  # fmt: skip
    # The samples of queues, by hours.
    queue = f"'tasks.task:queue-' || 1 + n % {queues}"
    hour = f"date_trunc('hour', now()) - n / {queues} * interval '1 hour'"
    insert(Depth, max(20, rows // 10), False, model_label=queue, minute=hour, queued="n % 1000", hourly="true")
    insert(Stats, max(20, rows // 10), False, model_label=queue, hour=hour, handled="n % 77", failed="n % 7")


def _workers(action: str) -> None:
    """Create workers with one action, which stay alive while pages are measured."""
    from stator.models import Worker

    published = {"tasks": {"actions": {"": [action]}}}
    insert(
        Worker, WORKERS, id="to_hex(n)", name="'worker-' || n", host="'bench'", pid="n", version="'1'",
        models=f"'{json.dumps(_labels())}'", database="'default'", started="now() - interval '1 hour'",
        heartbeat="now() + interval '1 day'", published=f"'{json.dumps(published)}'",
    )  # fmt: skip


def _labels() -> list[str]:
    from stator.models import StatorModel
    from stator.rows.meta import managed

    return sorted(model._meta.label_lower for model in managed(StatorModel.subclasses))


if __name__ == "__main__":
    main()
