"""``stator send``: send an event to an object."""

from argparse import ArgumentParser

from django.contrib.auth import get_user_model
from django.db.models import Model

from stator.commands.answer import Answer, BadInput, Options, actor, refusing
from stator.commands.arguments import add_label, database_of, json_of, model_of, pks_of
from stator.exceptions import EventRefused
from stator.extensions.events.events import declared_events, send
from stator.rows.keys import shown_key
from stator.rows.meta import owner_of

HELP = "Send an event to an object, as its graph declares with on()."

OUTCOMES = {
    "moved": "moved",
    "ready": "made ready",
    "kept": "kept until the object enters a state that takes it",
    "repeated": "sent before, with this key; nothing changed",
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the object, the event and its sender."""
    add_label(parser)
    parser.add_argument("pk", metavar="PK", help="Primary key of the object.")
    parser.add_argument("event", metavar="EVENT", help="Name of the event.")
    parser.add_argument("--payload", metavar="JSON", help='What the event carries, for example \'{"note": "ok"}\'.')
    parser.add_argument("--by", metavar="NAME", help="The user or program that sends it; a permission needs a user.")
    parser.add_argument("--key", default="", metavar="K", help="A key that its sender has used before does nothing.")
    parser.add_argument("--reason", default="", metavar="TEXT", help="Why; stored in the history.")


def run(options: Options) -> Answer:
    """Send the event; return what became of it."""
    model = model_of(options["label"])
    [pk] = pks_of(model, [options["pk"]])
    by = _sender(model, options) if options["by"] else actor()
    using = database_of(options, model)
    with refusing(EventRefused):
        payload = json_of("--payload", options["payload"])
        sent = send(
            model, pk, options["event"], payload, by=by, key=options["key"], reason=options["reason"], using=using
        )
    data = {
        "model": model._meta.label, "pk": shown_key(pk), "event": sent.event.name, "outcome": sent.outcome,
        "missing": sent.missing, "note": sent.note,
    }  # fmt: skip
    done = OUTCOMES.get(sent.outcome, f"counted; {sent.missing} more needed")
    note = f"{sent.note and '; '}{sent.note}"
    if options["by"] and isinstance(by, str):
        note += f"; sent as the program {by}, for no user has that name"
    return Answer(data, [f"{sent.event.name} to {model._meta.label} {shown_key(pk)}: {done}{note}."])


def _sender(model: type[Model], options: Options) -> object:
    """Return the named user, or else the name as that of a program, which no event with a permission takes."""
    name, users = options["by"], get_user_model()
    user = users._default_manager.filter(**{users.USERNAME_FIELD: name}).first()
    if user is None and any(event.permission for event in declared_events(owner_of(model), options["event"])):
        raise BadInput(f"--by {name!r}: there is no such user; give the {users.USERNAME_FIELD} of one")
    return user or name
