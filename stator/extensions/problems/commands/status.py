"""``stator status``: the work of every model, and the workers."""

from argparse import ArgumentParser
from dataclasses import asdict

from django.db import DEFAULT_DB_ALIAS

from stator.commands.answer import Answer, BadInput, Figures, Options, lines_of, table
from stator.commands.arguments import models_of
from stator.commands.running import lines_of_progress, reported
from stator.extensions.problems.in_schemas import MAX_LOOKED, in_schemas, named, surveyed
from stator.extensions.problems.kinds import KINDS
from stator.extensions.problems.survey import problems, surveys
from stator.extensions.problems.surveyed import Survey, Surveyed
from stator.graph.durations import span
from stator.rows.clock import moment_json
from stator.rows.deletions import Deleted
from stator.rows.stay import Stay
from stator.survey.deletions import deletion_text, deletions
from stator.survey.flow import HEADS as STAYS
from stator.survey.flow import Stays, moves
from stator.survey.looks import Looks, works_in_schemas
from stator.texts import count_text, counted
from stator.worker.startup import Unusable

HELP = (
    "Count the objects in each state, and those that are ready, leased, failing, stuck, quarantined or paused; "
    "show the workers. stator explain app.Model lists the objects that need attention."
)
HEADS = ["model", "ready", "oldest", "leased", "failing", "stuck", "quarantined", "unknown"]

# Of many schemas, and the most lines about single ones.
SCHEMA_HEADS, MAX_LINES = ["schema", "model", "ready", "oldest", "leased", "failing", "quarantined"], 50


def add_arguments(parser: ArgumentParser) -> None:
    """Add the models."""
    parser.add_argument("labels", nargs="*", metavar="app.Model", help="Models (default: all managed models).")


def run(options: Options) -> Answer:
    """Return the numbers of each model and the workers; in many schemas, for each schema and in sum."""
    if works_in_schemas(options["database"] or DEFAULT_DB_ALIAS):
        return _in_schemas(options)
    known = surveys(models_of(options["labels"]), options["database"])
    models = [figures for each in known for figures in _figures_in(each)]
    standing = problems(known)
    workers = [worker for each in known for worker in reported(each.workers)]
    # Models without objects, unless asked for by name, would only push the other models off the screen.
    listed = [
        figures for figures in models if options["labels"] or any(figures["states"].values()) or figures["unknown"]
    ]
    left = [f"{counted(len(models) - len(listed), 'model')} without objects not listed"] * (len(listed) < len(models))
    times = [line for figures in models for line in _times_in_states(figures)] if options["labels"] else []
    own = [problem for each in known for one in each.models.values() for problem in one.own]
    named_only = [problem for problem in own if problem.code == "named_only"]
    lines = [line for problem in (*standing, *named_only) for line in lines_of(problem)]
    # What is wrong comes first: a table of many models would push it off the screen.
    deleted = [one for each in known for one in _deleted_in(each)]
    lines += [*["No problems."] * (not standing), *map(deletion_text, deleted), ""]
    lines += [
        *table([*HEADS, *(kind.code for kind in KINDS if kind.cell), "states"], list(map(_row, listed))),
        *left,
        *times,
        "",
    ]
    if all(one.crew.known for each in known for one in each.models.values()):
        lines += _workers(workers, bool(named_only), is_read_only=any(each.refusal for each in known))
    lines += [line for each in known for line in lines_of_progress(each.workers)]
    data = {
        "models": models, "workers": workers, "troubles": [one.as_dict() for one in standing],
        "deleted": [
            {
                "model": one.label, "count": one.count, "retention": one.retention.name, "of": one.retention.of,
                "since": moment_json(one.since),
            }
            for one in deleted
        ],
    }  # fmt: skip
    return Answer(data, lines)


def _in_schemas(options: Options) -> Answer:
    try:
        known = in_schemas(models_of(options["labels"]), options["database"])
    except Unusable as error:
        raise BadInput(str(error)) from error
    total = known.total()
    listed = known.worth_a_line()
    rows = [["all", label, *figures.cells("-")] for label, figures in total.items() if figures.say_something]
    rows += [[scope.path, label, *figures.cells("-")] for scope, label, figures in listed[:MAX_LINES]]
    quiet = len(known.by_scope) - len({scope for scope, _, _ in listed})
    looked = surveyed(known, MAX_LOOKED)
    standing = looked.problems()
    lines = [line for problem in standing for line in lines_of(problem)] or ["No problems."]
    lines += [*[looked.note] * bool(looked.note), "", *(table(SCHEMA_HEADS, rows) if rows else [])]
    lines += [f"{counted(len(listed) - MAX_LINES, 'line')} left out; --json has all"] * (len(listed) > MAX_LINES)
    lines += [f"{counted(quiet, 'schema')} of {len(known.by_scope)} without such objects"] * bool(quiet)
    if known.alone:
        names = named([scope.path for scope in known.alone])
        lines.append(f"No live worker in {counted(len(known.alone), 'schema')}: {names}")
    lines.append("For the states, the problems and the workers of a schema: --schema NAME")
    data = {
        "sum": [{"model": label, **figures.as_dict()} for label, figures in total.items()],
        "schemas": [
            {"schema": scope.path, "database": scope.alias, "model": label, **figures.as_dict()}
            for scope, label, figures in listed
        ],
        "quiet": quiet,
        "without_worker": [scope.path for scope in known.alone],
        "troubles": [one.as_dict() for one in standing],
        "not_looked_into": [scope.path for scope in looked.unread],
    }
    return Answer(data, lines)


def _deleted_in(survey: Survey) -> list[Deleted]:
    models = [one.model for one in survey.models.values()]
    with Looks(survey.using, models, survey.unread) as looks:
        return deletions(models, looks)


def _figures_in(survey: Survey) -> list[Figures]:
    models = [one.model for one in survey.models.values()]
    with Looks(survey.using, models, survey.unread) as looks:
        stays_of = looks.of("stays", models, otherwise={})
        times = looks.of("times", models, otherwise={})
    return [_figures(one, stays_of.get(label, []), times.get(one.model, {})) for label, one in survey.models.items()]


def _figures(one: Surveyed, left: list[Stays], times: dict[tuple[str, str], Stay]) -> Figures:
    model, depths = one.model, one.depths
    cut = {f"states.{state.name}" for state in depths.states.values() if state.cut}
    return {
        "model": model._meta.label,
        "database": one.using,
        "states": {name: one.count for name, one in depths.states.items()},
        "ready": depths.ready,
        "oldest_ready": depths.waited,
        "leased": depths.leased,
        "failing": depths.failing,
        "stuck": depths.stuck_count,
        "quarantined": depths.quarantined,
        "unknown": depths.unknown,
        "capped": sorted(depths.capped | cut),
        "time_in_state": [
            {"from": source, "to": to, "moves": stay.moves, "average": stay.average, "longest": stay.longest}
            for (source, to), stay in sorted(times.items())
        ],
        "stays": [asdict(one) for one in left],
        **{kind.code: kind.listed(one) for kind in KINDS if kind.listed},
        "unserved": [problem.as_dict() for problem in one.unserved],
    }


def _row(figures: Figures) -> list[str]:
    oldest, capped = figures["oldest_ready"], figures["capped"]
    return [
        figures["model"],
        count_text(figures["ready"]),
        "-" if oldest is None else span(oldest),
        *(
            count_text(figures[name], name in capped)
            for name in ("leased", "failing", "stuck", "quarantined", "unknown")
        ),
        *(kind.cell(figures[kind.code]) or "-" for kind in KINDS if kind.cell),
        "  ".join(
            f"{name} {count_text(count, f'states.{name}' in capped)}"
            for name, count in figures["states"].items()
            if count
        ),
    ]


def _times_in_states(figures: Figures) -> list[str]:
    left = [Stays(**one) for one in figures["stays"]]
    if not left:
        return []
    head = f"Time in state, {figures['model']}, of the last {counted(moves(left), 'move')}:"
    return ["", head, *table([*STAYS], [[one.cells[0], *(cell or "-" for cell in one.cells[1:])] for one in left])]


def _workers(workers: list[Figures], served: bool, *, is_read_only: bool) -> list[str]:
    """Say how many processes are live. ``served``: even without any, named workers serve objects."""
    alive = [worker for worker in workers if worker["status"] == "alive"]
    if not alive:
        return ["No live worker process."] if served or is_read_only else ["No live worker; start runstator."]
    running = sum(worker["running"] for worker in alive)
    return [f"{counted(len(alive), 'live worker')}, {counted(running, 'attempt')} running"]
