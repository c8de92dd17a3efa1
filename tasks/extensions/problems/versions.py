"""Differences between the actions of live worker processes and this one, as when two releases run side by side."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from django.db.models import F

from stator.extensions.problems.surveyed import Survey
from stator.models import Problem, Version, Worker, differing
from tasks.queue.serving import LABEL, MAX_PROCESSES, registered

# Names of actions; those for one queue also name that queue.
Names = tuple[str, ...]


def versions(survey: Survey) -> Iterator[Problem]:
    """Find that not all processes have the same actions. One statement."""
    groups: dict[Names, list[str]] = defaultdict(list)
    live = Worker.objects.using(survey.using).live().order_by("-started", "pk")
    rows = live.values_list("host", "pid", "models", F("published__tasks__actions"))[:MAX_PROCESSES]
    for host, pid, models, actions in rows:
        # A process with very many actions publishes none.
        if LABEL in models and isinstance(actions, dict):
            groups[_names(actions)].append(f"{host}/{pid}")
    here = _names(registered())
    groups.setdefault(here, [])
    in_use = [
        Version(tuple(sorted(workers)), dict.fromkeys(names, ""), here=names == here)
        for names, workers in sorted(groups.items(), key=lambda group: (group[0] == here, group[1]))
    ]
    return differing("tasks.Task", in_use, "sets of actions are in use")


def _names(actions: Mapping[str, object]) -> Names:
    pairs = [(name, queue) for queue, names in actions.items() if isinstance(names, list) for name in names]
    return tuple(sorted(f"{name} (queue {queue})" if queue else str(name) for name, queue in pairs))
