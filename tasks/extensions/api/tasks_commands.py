"""``manage.py tasks token``: create, list and revoke tokens of the HTTP API."""

from datetime import UTC, datetime

from django.core.exceptions import ValidationError
from django.db import IntegrityError, router, transaction
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from stator.commands.answer import AddSubcommand, Answer, BadInput, Options, values_of
from stator.models import moment_json
from stator.texts import JsonObject
from tasks.datetimes import moment_problem, stored
from tasks.extensions.api.models import Consumer, Verb
from tasks.models import Queue
from tasks.queue.rules import queue_name_problem

MAX_LISTED = 10_000


def add_subcommands(add: AddSubcommand) -> None:
    """Add what there is to do with tokens."""
    create = add("create", "Create a consumer and print its token, which is shown only once.", _create)
    create.add_argument("name", help="Name of the program.")
    queue_help = "A queue that it may use; repeatable."
    create.add_argument("--queue", action="append", default=[], metavar="NAME", help=queue_help)
    create.add_argument("--all-queues", action="store_true", help="It may use all queues, also those created later.")
    verb_help = "What it may do with its queues; repeatable."
    create.add_argument("--verb", action="append", choices=Verb.values, default=[], help=verb_help)
    object_help = "A managed model whose objects it may see, and the events it may send to them; repeatable."
    create.add_argument("--object", action="append", default=[], metavar="app.Model[:EVENT,...]", help=object_help)
    expires_help = "When the token expires: ISO 8601, such as 2030-01-31 or 2030-01-31T12:00Z."
    create.add_argument("--expires", metavar="MOMENT", help=expires_help)
    create.add_argument("--requests-per-minute", type=int, metavar="N", help="Overrides API_REQUESTS_PER_MINUTE.")
    rows_help = "Overrides API_ROWS_PER_MINUTE. A task with worker_count=n is n + 1 rows."
    create.add_argument("--rows-per-minute", type=int, metavar="N", help=rows_help)
    add("list", "List consumers, without their tokens, which are not stored.", _list)
    revoke = add("revoke", "Disable a consumer for good.", _revoke)
    revoke.add_argument("name", help="Name of the program.")


def _create(options: Options) -> Answer:
    names, objects = set(options["queue"]), _objects(options["object"])
    if not (options["verb"] or objects):
        raise BadInput("choose what the token may do: --verb for its queues, or --object for managed objects")
    if options["verb"] and bool(names) == options["all_queues"]:
        raise BadInput("choose the queues of the token: either --queue NAME, once or more, or --all-queues")
    for name in sorted(names):
        if problem := queue_name_problem(name):
            raise BadInput(problem)
    chosen = list(Queue.objects.filter(name__in=names))
    if unknown := sorted(names - {queue.name for queue in chosen}):
        raise BadInput(f"there is no queue {unknown[0]!r}; see tasks queues")
    consumer = Consumer(
        name=options["name"],
        all_queues=options["all_queues"],
        managed_objects=objects,
        expires=_expires(options["expires"], router.db_for_write(Consumer)),
        requests_per_minute=options["requests_per_minute"],
        rows_per_minute=options["rows_per_minute"],
        **{f"may_{verb}": True for verb in options["verb"]},
    )
    token = consumer.issue()
    try:
        consumer.full_clean()
        with transaction.atomic():
            consumer.save()
            consumer.queues.set(chosen)
    except ValidationError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise BadInput(f"{field.strip('_')}: {messages[0]}") from error
    except IntegrityError as error:
        raise BadInput(f"there is a consumer {options['name']!r} already; choose another name") from error
    return Answer({**_as_json(consumer), "token": token}, [token])


def _objects(given: list[str]) -> dict[str, list[str]]:
    parts = [text.partition(":") for text in given]
    return {label.lower(): [name for name in events.split(",") if name] for label, _, events in parts}


def _list(options: Options) -> Answer:
    consumers = Consumer.objects.prefetch_related("queues").order_by("name")[:MAX_LISTED]
    data = [_as_json(consumer) for consumer in consumers]
    return Answer(data, [_line(one) for one in data] or ["There are no consumers; create one with: tasks token create"])


def _revoke(options: Options) -> Answer:
    consumer = Consumer.objects.filter(name=options["name"]).first()
    if consumer is None:
        raise BadInput(f"there is no consumer {options['name']!r}; see tasks token list")
    consumer.enabled = False
    consumer.save(update_fields=["enabled"])
    return Answer(_as_json(consumer), [f"{consumer.name} is disabled; its token is no longer valid"])


def _as_json(consumer: Consumer) -> JsonObject:
    # No list of queues means all.
    return {
        **values_of(consumer, "name", "prefix", "enabled", "verbs", "requests_per_minute", "rows_per_minute"),
        "queues": None if consumer.all_queues else sorted(queue.name for queue in consumer.queues.all()),
        "objects": consumer.managed_objects,
        "expires": _moment(consumer.expires),
        "used": _moment(consumer.used_minute),
    }


def _moment(moment: datetime | None) -> str | None:
    return moment_json(moment) if moment else None


def _line(row: JsonObject) -> str:
    usable = "all queues" if row["queues"] is None else f"queues {', '.join(row['queues']) or 'none'}"
    parts = [
        f"{row['name']}: tk_{row['prefix']}_..., {', '.join(row['verbs']) or 'nothing'}, {usable}",
        f"objects {', '.join(sorted(row['objects']))}" if row["objects"] else "",
        "" if row["enabled"] else "disabled",
        f"expires {row['expires']}" if row["expires"] else "",
        f"last used {row['used']}" if row["used"] else "never used",
    ]
    return ", ".join(filter(None, parts))


def _expires(text: str | None, using: str) -> datetime | None:
    if text is None:
        return None
    try:
        moment = parse_datetime(text) or parse_date(text)
    except ValueError:
        moment = None
    if moment is None:
        raise BadInput(f"--expires {text!r} is not a date or time; write 2030-01-31 or 2030-01-31T12:00Z")
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)  # noqa: DTZ001 - made aware below
    if timezone.is_naive(moment):
        moment = timezone.make_aware(moment)
    if moment <= datetime.now(UTC):
        raise BadInput(f"--expires {text!r} is in the past")
    if problem := moment_problem(moment):
        raise BadInput(f"--expires {text!r} {problem}")
    return stored(moment, using)
