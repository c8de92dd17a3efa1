"""``stator status``: what every model has to do, and who does it."""

from argparse import ArgumentParser
from typing import Any

from stator.commands.answer import Answer, BadInput, table
from stator.commands.arguments import database_of, models_of, rows_of
from stator.commands.figures import bounded, counts, databases_of, failing, oldest_ready, quarantined, shown
from stator.commands.pause import described
from stator.commands.workers import workers_in
from stator.durations import span
from stator.pauses import read_pauses
from stator.statistics import Stats

HELP = "Show counts per state, what is ready, leased, failing, quarantined or paused, and the workers."
HEADS = ["model", "ready", "oldest", "leased", "failing", "quarantined", "paused", "states"]


def add_arguments(parser: ArgumentParser) -> None:
    """Which models, and whether again and again."""
    parser.add_argument("labels", nargs="*", metavar="app.Model", help="Models (default: all that are managed).")
    parser.add_argument("--watch", action="store_true", help="Show it again every 2 seconds until Ctrl-C.")


def run(options: dict[str, Any]) -> Answer:
    """The figures of each model and the workers."""
    if options["watch"] and options["json"]:
        raise BadInput("--watch and --json do not go together; --json is one document")
    models = models_of(options["labels"])
    aliases = databases_of(models, options)
    pauses = {alias: read_pauses(alias) for alias in aliases}
    found = [_figures(model, options, pauses[database_of(options, model)]) for model in models]
    workers = [worker for alias in aliases for worker in workers_in(alias)]
    return Answer({"models": found, "workers": workers}, [*table(HEADS, list(map(_row, found))), "", *_crew(workers)])


def _figures(model: Any, options: dict[str, Any], pauses: list[Any]) -> dict[str, Any]:
    rows = rows_of(model, options)
    return {
        "model": model._meta.label,
        "database": rows.db,
        "states": counts(rows),
        "ready": bounded(rows.ready()),
        "oldest_ready": oldest_ready(rows),
        "leased": bounded(rows.leased()),
        "failing": failing(rows),
        "quarantined": quarantined(rows),
        "time_in_state": _times(model, rows.db),
        "paused": [described(pause) for pause in pauses if pause.model_label == model._meta.label_lower],
    }


def _times(model: Any, alias: str) -> list[dict[str, Any]]:
    """Seconds from entering a state to leaving it, by the edges that were taken in the last day."""
    found = Stats.get_for_model(model, alias).time_on_edges()
    return [
        {"from": source, "to": to, "moves": stay.moves, "average": stay.average, "longest": stay.longest}
        for (source, to), stay in sorted(found.items())
    ]


def _row(figures: dict[str, Any]) -> list[str]:
    oldest = figures["oldest_ready"]
    paused = [pause["state"] or ("where" if pause["where"] else "all") for pause in figures["paused"]]
    return [
        figures["model"],
        shown(figures["ready"]),
        "-" if oldest is None else span(oldest),
        *(shown(figures[name]) for name in ("leased", "failing", "quarantined")),
        ",".join(paused) or "-",
        "  ".join(f"{name} {shown(count)}" for name, count in figures["states"].items() if count),
    ]


def _crew(workers: list[dict[str, Any]]) -> list[str]:
    alive = [worker for worker in workers if worker["status"] == "alive"]
    if not alive:
        return ["No live worker; start runstator."]
    running = sum(worker["running"] for worker in alive)
    return [f"{len(alive):,} live workers, {running:,} attempts running"]
