"""``stator status``: the work of every model, and the workers."""

from argparse import ArgumentParser
from collections import Counter
from dataclasses import asdict
from typing import Any

from stator.commands.answer import Answer, table
from stator.commands.arguments import Options, database_of, models_of, rows_of
from stator.commands.figures import failing
from stator.commands.pause import described
from stator.commands.trouble import lines_of
from stator.commands.workers import Reported, workers_in
from stator.explain.sentences import counted
from stator.graph.durations import span
from stator.models import StatorModel
from stator.overview.depths import told
from stator.overview.stays import HEADS as STAYS
from stator.overview.stays import Stays, moves, stays
from stator.overview.survey import Surveyed, survey
from stator.overview.troubles import in_order, troubles_in
from stator.rows.meta import by_database
from stator.rows.statistics import Stats
from stator.texts import escape

HELP = (
    "Count the objects in each state, and those that are ready, leased, failing, stuck, quarantined or paused; "
    "show the workers. stator explain app.Model lists the objects that need attention."
)
HEADS = ["model", "ready", "oldest", "leased", "failing", "stuck", "quarantined", "unknown", "paused", "states"]


def add_arguments(parser: ArgumentParser) -> None:
    """Add the models."""
    parser.add_argument("labels", nargs="*", metavar="app.Model", help="Models (default: all managed models).")


def run(options: Options) -> Answer:
    """Return the numbers of each model and the workers."""
    models = models_of(options["labels"])
    models_in = by_database(models, options["database"])
    surveys = {alias: survey(alias, part) for alias, part in models_in.items()}
    standing = in_order(trouble for found in surveys.values() for trouble in troubles_in(found))
    stays_of = {alias: stays(alias, models) for alias in models_in}
    found = [
        _figures(
            surveys[alias].models[model._meta.label_lower], options, stays_of[alias].get(model._meta.label_lower, [])
        )
        for model in models
        for alias in [database_of(options, model)]
    ]
    workers = [worker for alias, part in models_in.items() for worker in workers_in(alias, part)]
    # Models without objects, unless asked for by name, would only push the others off the screen.
    listed = [
        figures for figures in found if options["labels"] or any(figures["states"].values()) or figures["unknown"]
    ]
    left = [f"{counted(len(found) - len(listed), 'model')} without objects not listed"] * (len(listed) < len(found))
    times = [line for figures in found for line in _times_in_states(figures)] if options["labels"] else []
    noticed = [(figures["model"], notice) for figures in found for notice in figures["notices"]]
    served = any(notice["served"] for _, notice in noticed)
    # These name the unserved objects.
    named = [line for each in noticed for line in _noticed(*each)]
    troubles = [line for trouble in standing if trouble.code != "unserved" for line in lines_of(trouble)]
    troubles = troubles if standing else ["No problems."]
    lines = [*table(HEADS, list(map(_row, listed))), *left, *times, "", *_crew(workers, served), *named, *troubles]
    return Answer({"models": found, "workers": workers, "troubles": [one.as_dict() for one in standing]}, lines)


def _figures(one: Surveyed, options: Options, left: list[Stays]) -> dict[str, Any]:
    model, found = one.model, one.depths
    rows = rows_of(model, options)
    return {
        "model": model._meta.label,
        "database": rows.db,
        "states": {name: one.count for name, one in found.states.items()},
        "ready": found.ready,
        "oldest_ready": found.waited,
        "leased": found.leased,
        "failing": failing(rows),
        "stuck": found.stuck_count,
        "quarantined": found.quarantined,
        "unknown": found.unknown,
        "time_in_state": _times(model, rows.db),
        "stays": [asdict(one) for one in left],
        "paused": [described(pause) for pause in one.pauses],
        "notices": [notice.as_dict() for notice in one.notices],
    }


def _times(model: type[StatorModel], alias: str) -> list[dict[str, Any]]:
    """Return the seconds from entering a state to leaving it, for the edges taken in the last day."""
    found = Stats.get_for_model(model, alias).time_on_edges()
    return [
        {"from": source, "to": to, "moves": stay.moves, "average": stay.average, "longest": stay.longest}
        for (source, to), stay in sorted(found.items())
    ]


def _row(figures: dict[str, Any]) -> list[str]:
    oldest = figures["oldest_ready"]
    paused = Counter(pause["state"] or ("where" if pause["where"] else "all") for pause in figures["paused"])
    return [
        figures["model"],
        told(figures["ready"]),
        "-" if oldest is None else span(oldest),
        *(told(figures[name]) for name in ("leased", "failing", "stuck", "quarantined", "unknown")),
        ",".join(f"{what} x{count}" if count > 1 else what for what, count in paused.items()) or "-",
        "  ".join(f"{name} {told(count)}" for name, count in figures["states"].items() if count),
    ]


def _times_in_states(figures: dict[str, Any]) -> list[str]:
    left = [Stays(**one) for one in figures["stays"]]
    if not left:
        return []
    head = f"Time in state, {figures['model']}, of the last {counted(moves(left), 'move')}:"
    return ["", head, *table([*STAYS], [[one.cells[0], *(cell or "-" for cell in one.cells[1:])] for one in left])]


def _noticed(model: str, notice: dict[str, Any]) -> list[str]:
    count = f"{notice['count']:,}{'+' if notice['more'] else ''}"
    remedy = [f"      -> {notice['remedy']}"] if notice["remedy"] and not notice["served"] else []
    return [escape(line) for line in (f"{model}, {notice['group']}: {count} ready. {notice['sentence']}", *remedy)]


def _crew(workers: list[Reported], served: bool) -> list[str]:
    """Say how many processes are live. ``served``: without any, named workers serve objects all the same."""
    alive = [worker for worker in workers if worker["status"] == "alive"]
    if not alive:
        return ["No live worker process."] if served else ["No live worker; start runstator."]
    running = sum(worker["running"] for worker in alive)
    return [f"{counted(len(alive), 'live worker')}, {counted(running, 'attempt')} running"]
