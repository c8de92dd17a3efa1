"""Arguments of subcommands: models, databases, objects, states, conditions, and the actor."""

import json
from argparse import ArgumentParser
from difflib import get_close_matches

from django.core.exceptions import ValidationError
from django.db import connections, router

from stator.commands.answer import BadInput, Options, refusing
from stator.models import StatorModel
from stator.querysets import OperatorQuerySet
from stator.rows.keys import key_of
from stator.rows.meta import managed, model_named, named_state, owner_of
from stator.rows.transitions import state_by_hand
from stator.texts import listed

# Models that are listed if a label is unknown.
MAX_MODELS = 20

# The largest number that the argument list may have.
MAX_NUMBER = 1_000_000


def add_label(parser: ArgumentParser) -> None:
    """Add the argument that names a model."""
    parser.add_argument("label", metavar="app.Model", help="The model.")


def add_what(parser: ArgumentParser) -> None:
    """Add the arguments that choose objects of a model."""
    parser.add_argument("--state", metavar="S", help="Only objects in this state.")
    where_help = "Only objects with this value; repeatable."
    parser.add_argument("--where", action="append", default=[], metavar="K=V", help=where_help)


def add_pks(parser: ArgumentParser, many: str) -> None:
    """Add the argument that names objects; ``many`` is argparse's ``nargs``."""
    parser.add_argument("pks", nargs=many, metavar="PK", help="Primary keys of objects.")


def model_of(label: str) -> type[StatorModel]:
    """Return the managed model for a label: the one whose table has the state."""
    return owner_of(named_model(label))


def named_model(label: str) -> type[StatorModel]:
    """Return the managed model with this very label, which may inherit its state from another."""
    try:
        model = model_named(label)
    except (LookupError, ValueError) as error:
        raise BadInput(f"{label!r} is not a model; {_nearest(label)}") from error
    if not issubclass(model, StatorModel):
        raise BadInput(f"{label!r} is not managed by Stator; let it inherit StatorModel")
    if model._meta.abstract or not hasattr(model, "state_graph"):
        raise BadInput(f"{label!r} has no rows of its own; name a model with a StateField")
    return model


def _nearest(label: str) -> str:
    """Return a hint with similar labels, or else with all labels."""
    known = [str(model._meta.label) for model in StatorModel.subclasses]
    lower = {name.lower(): name for name in known}
    alike = [name for name in known if name.lower().endswith(f".{label.lower()}")]
    close = alike or [lower[name] for name in get_close_matches(label.lower(), lower, 1)]
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"managed models are: {listed(known, MAX_MODELS) or 'none'}"


def models_of(labels: list[str]) -> list[type[StatorModel]]:
    """Return the managed models with these labels, or all."""
    return list(dict.fromkeys(map(model_of, labels))) or managed(StatorModel.subclasses)


def database_of(options: Options, model: type[StatorModel]) -> str:
    """Return the given database, or the database that the routers write the model to."""
    return str(options["database"] or router.db_for_write(model))


def check_database_name(name: str | None) -> None:
    """Refuse the name of a database that the project does not have."""
    if name is not None and name not in connections:
        raise BadInput(f"--database {name!r} is not in DATABASES; choose from {', '.join(connections)}")


def rows_of(model: type[StatorModel], options: Options) -> OperatorQuerySet:
    """Return all rows of a model in the database of ``options``."""
    return OperatorQuerySet(model, using=database_of(options, model))


def pks_of(model: type[StatorModel], texts: list[str]) -> list[object]:
    """Return the primary keys for texts, each once."""
    pks = []
    for text in texts:
        try:
            pks.append(key_of(model, text))
        except (ValidationError, ValueError, OverflowError) as error:
            raise BadInput(f"{text!r} cannot be the primary key of {model._meta.label}") from error
    return list(dict.fromkeys(pks))


def state_of(model: type[StatorModel], name: str | None) -> str | None:
    """Return the name of a state of the model's graph; refuse other names."""
    if name is None:
        return None
    with refusing(ValueError):
        return str(named_state(model, name))


def target_of(model: type[StatorModel], name: str) -> str:
    """Return the name of a state that objects may be moved to by hand; refuse other names."""
    with refusing(ValueError):
        return str(state_by_hand(model, name))


def where_of(pairs: list[str], option: str = "--where") -> dict[str, object] | None:
    """Return lookups from ``name=value``; a value that is valid JSON is parsed, any other is a text."""
    where = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not (name and sign):
            raise BadInput(f"{option} {pair!r} must be NAME=VALUE, for instance tenant=3")
        where[name] = _value(text)
    return where or None


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def json_of(option: str, text: str | None) -> object:
    """Return the value of a text in JSON; None if it is left out."""
    try:
        return None if text is None else json.loads(text)
    except RecursionError as error:
        raise BadInput(f"{option} {text!r:.80} is nested too deep") from error
    except ValueError as error:
        raise BadInput(f"{option} {text!r:.80} is not JSON: {error}; write a text in double quotes") from error


def limit_of(options: Options, most: int = MAX_NUMBER) -> int:
    """Return the greatest number of objects; refuse a number that is out of range."""
    limit = options["limit"] or 0
    if not 0 < limit <= most:
        raise BadInput(f"--limit {options['limit']} must be from 1 to {most:,}")
    return limit


def first_of(rows: OperatorQuerySet, options: Options) -> OperatorQuerySet:
    """Return the first rows by their keys, as many as ``--limit`` says; all without it."""
    if options["limit"] is None:
        return rows
    # As keys, since a sliced queryset cannot be filtered further.
    pks = list(rows.order_by("pk").values_list("pk", flat=True)[: limit_of(options)])
    return OperatorQuerySet(rows.model, using=rows.db).filter(pk__in=pks)


def positive(name: str, value: float | None) -> None:
    """Refuse a number that is not above 0, or is absurdly large."""
    if value is not None and not 0 < value <= MAX_NUMBER * 1000:
        raise BadInput(f"{name} {value} must be above 0 and at most {MAX_NUMBER * 1000:,}")
