"""The contents of the overview of a site in many schemas: their problems in one list, and their figures."""

from dataclasses import dataclass

from stator.admin.access import Pages
from stator.extensions.overview.problems import shown_problem
from stator.extensions.problems.in_schemas import MAX_LOOKED_BY_PAGE, in_schemas, surveyed
from stator.models import StatorModel
from stator.worker.startup import Unusable

# The most lines about single schemas.
MAX_LINES = 50


@dataclass(frozen=True, slots=True)
class ShownSchemas:
    """What the page shows. A line: the schema, "" for all, the model, and its figures.

    ``note``: schemas with problems that were not looked into. ``failed``: why nothing is known.
    """

    problems: list[dict[str, object]]
    note: str
    lines: list[tuple[str, str, list[str]]]
    left_out: int
    quiet: int
    count: int
    alone: list[str]
    failed: str = ""


def show_schemas(models: list[type[StatorModel]], pages: Pages) -> ShownSchemas:
    """Read the figures of all schemas, and the problems of the worst ones."""
    try:
        known = in_schemas(models)
    except Unusable as error:
        return ShownSchemas([], "", [], 0, 0, 0, [], str(error))
    looked = surveyed(known, MAX_LOOKED_BY_PAGE)
    single = known.worth_a_line()
    lines = [("", label, figures.cells("")) for label, figures in known.total().items() if figures.say_something]
    lines += [(scope.path, label, figures.cells("")) for scope, label, figures in single[:MAX_LINES]]
    return ShownSchemas(
        [shown_problem(one, pages) for one in looked.problems()],
        looked.note, lines, max(0, len(single) - MAX_LINES),
        len(known.by_scope) - len({scope for scope, _, _ in single}), len(known.by_scope),
        [scope.path for scope in known.alone],
    )  # fmt: skip
