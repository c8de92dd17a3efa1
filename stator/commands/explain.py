"""``stator explain``: why an object is not moving."""

from argparse import ArgumentParser
from typing import Any

from stator.commands.answer import Answer
from stator.commands.arguments import add_label, database_of, model_of, pks_of
from stator.explain import explain

HELP = "Say why an object is not moving."


def add_arguments(parser: ArgumentParser) -> None:
    """The model and the object."""
    add_label(parser)
    parser.add_argument("pk", metavar="PK", help="Primary key of the object.")


def run(options: dict[str, Any]) -> Answer:
    """The reasons, the most decisive first."""
    model = model_of(options["label"])
    (pk,) = pks_of(model, [options["pk"]])
    reasons = explain(model, pk, database_of(options, model))
    data = {"model": model._meta.label, "pk": str(pk), "reasons": [reason.as_dict() for reason in reasons]}
    return Answer(data, [f"{reason.code}: {reason.sentence}" for reason in reasons])
