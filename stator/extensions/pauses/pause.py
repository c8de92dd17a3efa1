"""``stator pause``: stop workers from attempting objects."""

from argparse import ArgumentParser

from stator.commands.answer import Answer, Options, actor, add_length, offer, refusing
from stator.commands.arguments import add_label, add_what, model_of, positive, rows_of, state_of, where_of
from stator.extensions.pauses.models import described
from stator.rows.actions import Action
from stator.rows.clock import moment_text

HELP = "Stop workers from attempting a model, one of its states or some objects. Running attempts may finish."


def add_arguments(parser: ArgumentParser) -> None:
    """Add what to pause, why and for how long."""
    add_label(parser)
    add_what(parser)
    add_length(parser)


def run(options: Options) -> Answer:
    """Make the pause and return it."""
    model = model_of(options["label"])
    positive("--for", options["seconds"])
    state, where, seconds = state_of(model, options["state"]), where_of(options["where"]), options["seconds"]
    with refusing(ValueError):
        action = Action.of(model, "pause", actor(), options["reason"])
        pause = rows_of(model, options).pause(
            state, where, reason=options["reason"], actor=action.actor, seconds=seconds, action=action
        )
    end = "it is resumed" if pause.until is None else moment_text(pause.until)
    return Answer(described(pause), [f"Paused {pause} until {end}.", *offer(action, options)])
