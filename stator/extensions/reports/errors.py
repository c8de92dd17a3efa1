"""``stator errors``: the errors of objects that still fail, grouped by where they were raised."""

from argparse import ArgumentParser

from stator.commands.answer import Answer, Options, lines_of, table
from stator.commands.arguments import limit_of, models_of
from stator.extensions.reports.groups import groups
from stator.graph.durations import span
from stator.querysets import rows_by_label
from stator.rows.meta import by_database
from stator.rows.problem import Problem
from stator.survey.looks import Looks
from stator.survey.numbers import ErrorGroup
from stator.texts import count_text

HELP = "Group the errors of failing objects by place in the code. Retry a group: stator retry app.Model --error ID."

HEADS = ["model", "error", "failing", "state", "latest", "message"]


def add_arguments(parser: ArgumentParser) -> None:
    """Add the models."""
    parser.add_argument("labels", nargs="*", metavar="app.Model", help="Only these models.")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="Maximum number of groups (default: 20).")


def run(options: Options) -> Answer:
    """Return the groups with objects that still fail, the groups with the most such objects first."""
    models, limit = models_of(options["labels"]), limit_of(options)
    failing, unread = list[ErrorGroup](), dict[str, Problem]()
    for using, part in by_database(models, options["database"]).items():
        with Looks(using, list(part), unread) as looks:
            failing += [group for group in groups(using, rows_by_label(part, using), None, looks)[0] if group.failing]
    failing = sorted(failing, key=lambda group: -len(group.failing))[:limit]
    labels = {model._meta.label_lower: str(model._meta.label) for model in models}
    data = [
        {
            "model": labels[group.label], "id": group.fingerprint, "error": group.error, "message": group.message,
            "state": group.state, "failing": len(group.failing),
            "at_least": group.cut, "latest": group.latest,
        }
        for group in failing
    ]  # fmt: skip
    return Answer(data, [*_lines(failing, labels), *(line for one in unread.values() for line in lines_of(one))])


def _lines(failing: list[ErrorGroup], labels: dict[str, str]) -> list[str]:
    if not failing:
        return ["No object that can be retried fails."]
    lines = table(
        HEADS,
        (
            (labels[group.label], group.fingerprint, count_text(len(group.failing), group.cut), group.state,
             f"{span(group.latest)} ago", " ".join(f"{group.error}: {group.message}".split())[:100])
            for group in failing
        ),
    )  # fmt: skip
    first = failing[0]
    return [*lines, f"Retry a group: stator retry {labels[first.label]} --error {first.fingerprint} --per-minute 60"]
