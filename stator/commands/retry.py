"""``stator retry``: make objects due now."""

from argparse import ArgumentParser

from stator.commands.answer import Answer, BadInput, Options, actor, offer
from stator.commands.arguments import (
    MAX_NUMBER,
    add_label,
    add_pks,
    first_of,
    limit_of,
    model_of,
    pks_of,
    positive,
    rows_of,
    state_of,
)
from stator.commands.named import acted
from stator.graph.durations import span
from stator.logs import progress
from stator.querysets import OperatorQuerySet
from stator.rows.actions import Action
from stator.rows.due_times import AT_ONCE, looked_at, retry_spread
from stator.rows.readings import read
from stator.rows.state_column import state_field
from stator.survey.depths import far_future

HELP = "Attempt objects now, with their errors and lost leases forgotten. Claimed objects stay as they are."


def add_arguments(parser: ArgumentParser) -> None:
    """Add the objects."""
    add_label(parser)
    add_pks(parser, "*")
    parser.add_argument("--state", metavar="S", help="Only objects in this state.")
    parser.add_argument("--failed", action="store_true", help="Only objects whose latest attempt was an error.")
    parser.add_argument("--quarantined", action="store_true", help="Only objects in quarantine.")
    parser.add_argument("--far", action="store_true", help="Only objects that are due in more than a year.")
    parser.add_argument("--limit", type=int, metavar="N", help="Maximum number of objects.")
    parser.add_argument("--error", metavar="ID", help="Only objects whose latest error has this id; see stator errors.")
    parser.add_argument(
        "--per-minute", type=float, metavar="N", help="With --error: how many become due per minute (default: 60)."
    )
    parser.add_argument("--yes", action="store_true", help="Required to retry all objects of the model.")


def run(options: Options) -> Answer:
    """Retry the objects; return how many are due now."""
    model = model_of(options["label"])
    every, pks = rows_of(model, options), pks_of(model, options["pks"])
    if options["error"]:
        return _at_rate(every, options, given=bool(pks))
    rows = _meant(every, pks, options)
    if options["limit"] is not None:
        rows = first_of(_free(rows), options)
    looked = looked_at(_free(rows))
    action = Action.of(model, "retry", actor())
    with progress("made due") as action.progress:
        count = rows.retry(action=action)
    data = {"model": model._meta.label, "retried": count, "action": action.pk}
    kept = [
        *([words] if (words := read("prospects", every.db, every, looked, count, otherwise="")) else []),
        *offer(action, options),
    ]
    if not pks:
        return Answer(data, [f"{count:,} of {model._meta.label} {'is' if count == 1 else 'are'} due now.", *kept])
    done = acted(every, pks, count, data, done="made due", otherwise=_otherwise(options))
    return Answer(done.data, [*done.lines, *kept], done.code)


def _at_rate(rows: OperatorQuerySet, options: Options, *, given: bool) -> Answer:
    """Retry the objects that fail with one error, spread over time."""
    if given or any(options[name] for name in ("state", "failed", "quarantined", "far", "yes")):
        raise BadInput(
            "--error chooses the objects by itself; leave keys, --state, --failed, --quarantined and --far away"
        )
    per_minute = 60.0 if options["per_minute"] is None else options["per_minute"]
    positive("--per-minute", per_minute)
    keys = read("fingerprinted", rows.db, rows, str(options["error"]), AT_ONCE, otherwise=())
    most = MAX_NUMBER if options["limit"] is None else limit_of(options)
    action = Action.of(rows.model, "retry", actor())
    with progress("become due") as action.progress:
        count = retry_spread(rows, keys, per_minute=per_minute, most=most, action=action)
    label = rows.model._meta.label
    data = {
        "model": label, "error": options["error"], "per_minute": per_minute, "retried": count, "action": action.pk,
    }  # fmt: skip
    line = f"{count:,} of {label} become due within {span(count / per_minute * 60)}, {per_minute:g} a minute."
    return Answer(data, [line, *offer(action, options)])


def _otherwise(options: Options) -> str:
    named = [name for name in ("state", "failed", "quarantined", "far", "limit") if options[name]]
    excluded = f", or excluded by {' and '.join(f'--{name}' for name in named)}" if named else ""
    return "{others} held, or in a state that workers do not attempt" + excluded


def _meant(rows: OperatorQuerySet, pks: list[object], options: Options) -> OperatorQuerySet:
    state = state_of(rows.model, options["state"])
    conditions = [options[name] for name in ("failed", "quarantined", "far")]
    if not (pks or state or any(conditions) or options["limit"] is not None or options["yes"]):
        raise BadInput(f"this retries every object of {rows.model._meta.label}; add --yes, or choose objects")
    if pks:
        rows = rows.filter(pk__in=pks)
    if state:
        rows = rows.in_state(state)
    if options["failed"]:
        rows = rows.failed()
    if options["far"]:
        rows = far_future(rows).order_by()
    return rows.quarantined() if options["quarantined"] else rows


def _free(rows: OperatorQuerySet) -> OperatorQuerySet:
    return rows.filter(state_claim=None, **state_field(rows.model).among(rows.model.state_graph.automatic_states))
