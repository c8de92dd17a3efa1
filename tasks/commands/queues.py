"""Subcommands of ``manage.py tasks queue``: create queues and change their rules."""

from argparse import BooleanOptionalAction

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from stator.commands.answer import AddSubcommand, Answer, BadInput, Options
from tasks.commands.operating import named
from tasks.models import Queue
from tasks.queue.rules import NAME, RULES
from tasks.rows.databases import home

METAVARS = {float: "SECONDS", int: "N"}


def add_subcommands(add: AddSubcommand) -> None:
    """Add ``create`` and ``set`` with their options."""
    new = add("create", "Create a queue.", create)
    new.add_argument("--exclusive-key", metavar="KEY", help="At most one task runs for each value of this metadata.")
    new.add_argument("--spread", action="store_true", help="Its tasks are in all parts of a divided table.")
    for parser in (new, add("set", "Change rules of a queue; rules that are not given stay.", configure)):
        parser.add_argument("name", metavar="QUEUE", help="The queue.")
        for name, rule in RULES.items():
            if rule.is_number:
                parser.add_argument(_option(name), type=rule.kind, metavar=METAVARS[rule.kind], help=rule.says)
            elif rule.kind is bool:
                parser.add_argument(_option(name), action=BooleanOptionalAction, help=rule.says)
        listed = parser.add_mutually_exclusive_group()
        text = "An action that programs may publish over HTTP; repeatable. Replaces the listed ones."
        listed.add_argument("--http-action", action="append", dest="http_actions", metavar="ACTION", help=text)
        text = "Programs may not publish any action of the site's own code."
        listed.add_argument("--no-http-actions", action="store_const", const=[], dest="http_actions", help=text)


def create(options: Options) -> Answer:
    """Create a queue and report its rules."""
    name, key = options["name"], options["exclusive_key"]
    kind = Queue.Kind.EXCLUSIVE if key else Queue.Kind.SIMPLE
    queue = Queue(name=name, kind=kind, exclusive_key=key or "", spread=options["spread"], **_given(options))
    try:
        NAME(name)
        with transaction.atomic(using=home()):
            queue.save(force_insert=True)
    except IntegrityError as error:
        raise BadInput(f"there is a queue {name!r} already; change it with: tasks queue set") from error
    except ValidationError as error:
        raise _refused(error) from error
    return Answer(_as_dict(queue), [f"Queue {name} is created: {_line(queue)}."])


def configure(options: Options) -> Answer:
    """Change the given rules of a queue and report its rules."""
    queue, given = named(options["name"]), _given(options)
    if not given:
        raise BadInput("choose at least one rule to change; see tasks queue set --help")
    for name, value in given.items():
        setattr(queue, name, value)
    try:
        queue.save(update_fields=list(given))
    except ValidationError as error:
        raise _refused(error) from error
    return Answer(_as_dict(queue), [f"Queue {queue.name}: {_line(queue)}."])


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _given(options: Options) -> dict[str, object]:
    return {name: options[name] for name in RULES if options[name] is not None}


def _refused(error: ValidationError) -> Exception:
    if not hasattr(error, "error_dict"):
        return BadInput(f"QUEUE {error.messages[0]}")
    field, messages = next(iter(error.message_dict.items()))
    return BadInput(f"{_option('http_action' if field == 'http_actions' else field)}: {messages[0]}")


def _as_dict(queue: Queue) -> dict[str, object]:
    names = ("exclusive_key", "spread", *RULES)
    return {"queue": queue.name, **{name: getattr(queue, name) for name in names}}


def _line(queue: Queue) -> str:
    elsewhere = "accepts any action, for external programs" if queue.actions_elsewhere else "accepts known actions only"
    return f"{elsewhere}; over HTTP {', '.join(queue.http_actions) or 'none'} of the site's own code"
