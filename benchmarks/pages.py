"""How long the pages of the admin take in large tables: every filter, order, search and page.

``python -m benchmarks.pages [--rows 1000000] [--kept 1000000] [--repeat 3] [--only WORDS]``
"""

import argparse
import html
import os
import re
import statistics
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_plus

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.site")
os.environ.setdefault("LOG_LEVEL", "ERROR")
os.environ.setdefault("SECRET_KEY", "for benchmarks")

from benchmarks.harness import arguments, database, make_tables, print_table, spread
from benchmarks.report import print_targets, verdict, watch

# The most milliseconds that a page may take, and the most kilobytes that it may have.
MAX_MILLISECONDS = 300
MAX_KB = 300
# How many pages are printed, the slowest first.
SHOWN = 30
# Models with statistics.
MODELS = 12

LISTS = (
    "benchmarks/pageitem", "tasks/task", "tasks/run", "tasks/schedule", "tasks/queue", "tasks/consumer",
    "stator/history", "stator/report", "stator/stats", "stator/depth", "stator/worker", "stator/pause",
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
LINK = re.compile(r'href="(\?[^"]*)"')

# States of a table with only a few problems, hard to find, and of a table where most rows have one.
WELL = """CASE WHEN n <= 5 THEN 'lost' WHEN n <= 700 THEN 'new' WHEN n % 100 = 0 THEN 'new'
  WHEN n % 100 < 20 THEN 'checked' WHEN n % 1000 = 21 THEN 'failed' ELSE 'done' END"""
ILL = "CASE WHEN n % 10 < 5 THEN 'new' WHEN n % 10 < 8 THEN 'checked' WHEN n % 10 = 8 THEN 'lost' ELSE 'done' END"


def main() -> None:
    """Measure and print."""
    quick = {"rows": 2000, "kept": 2000}
    options = arguments(__doc__, quick=quick, extend=_only, rows=1_000_000, kept=1_000_000)
    with database():
        from stator.models import StatorModel

        mine = [model for model in StatorModel.subclasses if model._meta.app_label == "benchmarks"]
        make_tables(*mine)
        fill_kept(options.kept)
        client = logged_in()
        found: dict[str, list[tuple[float, float, float]]] = {}
        for name, fill in {"a few stuck": fill_well, "nothing well": fill_ill}.items():
            fill(options.rows)
            pages = [*(lists(client) if name == "a few stuck" else links(client, LISTS[0])), *others()]
            for path in pages:
                if options.only in path:
                    measured(client, path)
                    found[f"{name}: {title(path)}"] = [measured(client, path) for _ in range(options.repeat)]
    medians = {page: statistics.median(wall for wall, _, _ in times) for page, times in found.items()}
    slowest = sorted(found, key=lambda page: -medians[page])
    rows = [
        [page, *(spread([one[at] for one in found[page]]) for at in range(3))] for page in slowest[:SHOWN]
    ]  # fmt: skip
    print_table(
        f"{len(found)} pages with {options.rows:,} objects and {options.kept:,} rows of each list; the slowest of them",
        ["page", "ms: median (least-most)", "processor ms, site and database", "kB"],
        rows,
    )
    over = sum(median > MAX_MILLISECONDS for median in medians.values())
    sizes = {page: max(size for _, _, size in times) for page, times in found.items()}
    largest = max(sizes, key=lambda page: sizes[page])
    print_targets([
        verdict("slowest page, median in ms", medians[slowest[0]], MAX_MILLISECONDS, most=True),
        f"pages over {MAX_MILLISECONDS} ms: {over} of {len(found)}",
        verdict(f"largest page, {largest}, in kB", sizes[largest], MAX_KB, most=True),
    ])  # fmt: skip


def _only(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default="", metavar="WORDS", help="only pages whose address has these words")


def logged_in() -> Any:
    """Return a client that is logged in as a superuser."""
    from django.contrib.auth.models import User
    from django.test import Client

    User.objects.filter(username="benchmark").delete()
    client = Client(SERVER_NAME="localhost")
    client.force_login(User.objects.create_superuser("benchmark"))
    return client


def measured(client: Any, path: str) -> tuple[float, float, float]:
    """Return the milliseconds of an existing page, elapsed and of CPU, and its kilobytes."""
    with watch() as spent:
        response = client.get(path)
    if response.status_code != 200:
        raise SystemExit(f"{path} gives {response.status_code}")
    return 1000 * spent.seconds, 1000 * (spent.own + spent.server), len(response.content) / 1000


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
    yield from ("/admin/", overview, f"{overview}?period=month")
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
    """Create objects; many of them have one of these problems."""
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


def fill_kept(rows: int) -> None:
    """Create tasks, claims and schedules, and the framework's rows beside them."""
    from stator.models import Depth, History, Report, StatorModel, Stats
    from tasks.models import Queue, Run, Schedule, Task

    insert(Queue, 100, name="'queue-' || n", kind="'simple'")
    insert(
        Task, rows, queue_id="1 + n % 100", worker_ids="'[]'", worker_count="1", priority="n", key="'key-' || n",
        action="CASE WHEN n = 77 THEN 'rare' ELSE 'resize' END",
        state="CASE WHEN n % 50 = 0 THEN 'pending' WHEN n % 100 = 1 THEN 'errored' ELSE 'completed' END",
        state_ready="n % 50 = 0", state_changed="now() - n * interval '1 second'",
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
    labels = sorted(model._meta.label_lower for model in StatorModel.subclasses)[:MODELS]
    label = f"('{{{','.join(labels)}}}'::text[])[1 + n % {MODELS}]"
    hours = f"date_trunc('hour', now()) - (n / {2 * MODELS}) * interval '1 hour'"
    insert(Stats, max(20, rows // 10), model_label=label, hour=hours, source="'new'",
           to=f"'checked' || n % {2 * MODELS}", handled="100 + n % 77", failed="n % 7")  # fmt: skip
    # The last two days by minutes, older ones by hours, as workers store them.
    back = f"least(n / {MODELS}, 2880) * interval '1 minute' + greatest(n / {MODELS} - 2880, 0) * interval '1 hour'"
    insert(Depth, max(20, rows // 10), model_label=label, minute=f"date_trunc('minute', now()) - ({back})",
           queued="n % 1000", hourly=f"n / {MODELS} > 2880")  # fmt: skip
    # The samples of queues, by hours.
    queue, hour = "'tasks.task:queue-' || 1 + n % 100", "date_trunc('hour', now()) - n / 100 * interval '1 hour'"
    insert(Depth, max(20, rows // 10), False, model_label=queue, minute=hour, queued="n % 1000", hourly="true")
    insert(Stats, max(20, rows // 10), False, model_label=queue, hour=hour, handled="n % 77", failed="n % 7")


if __name__ == "__main__":
    main()
