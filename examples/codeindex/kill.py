"""The part of ``--kill``: a worker that is killed in mid-flight, and a wrong bulk move that is undone."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.conf import settings
from django.core.management import CommandError, call_command
from django.db.models import QuerySet

from examples.codeindex.graph import SourceFileGraph as Graph
from examples.codeindex.models import SourceFile
from examples.codeindex.progress import Progress
from examples.codeindex.text import printable
from examples.codeindex.work import work_until_rest
from stator.models import Action, History

# Seconds; how often it is looked whether the worker holds files, and for how long.
GLANCE, PATIENCE = 0.005, 60.0
MAX_NAMED = 5


def kill_and_undo(root: str, console: Any) -> None:
    """Show both on the indexed files below a root, and leave them indexed."""
    _kill_a_worker(root, console)
    _undo_a_move(root, console)


def _kill_a_worker(root: str, console: Any) -> None:
    console.write("\nA worker is killed\n------------------")
    files = SourceFile.objects.filter(root=root)
    indexed = files.filter(state=Graph.indexed)
    # Otherwise the handler sees that the content is indexed already.
    indexed.update(indexed_digest="")
    count = SourceFile.transition_perform_queryset(indexed, Graph.found, actor="codeindex", reason="--kill")
    with _worker() as process:
        console.write(f"{count:,} files are to be indexed again. A worker starts: pid {process.pid}.")
        _wait_for_claims(files, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    killed = time.monotonic()
    held = list(files.exclude(state_claim=None).values_list("pk", flat=True))
    console.write(f"kill -9 {process.pid}, while it had {_named(files.filter(pk__in=held), len(held))}.")
    lease = f"{Graph.found.lease:g} s"
    console.write(f"A second worker takes the other files at once, and these when their leases of {lease} end.")
    with Progress(root, console):
        work_until_rest(root)
    done, seconds = files.filter(state=Graph.indexed).count(), time.monotonic() - killed
    console.write(f"{done:,} of {count:,} files are indexed {seconds:.1f} s after the kill: none was lost.")
    console.write(f"{_attempted_again(held):,} of the {len(held):,} that the dead worker had were attempted once more.")


def _attempted_again(held: list[int]) -> int:
    keys = [str(pk) for pk in held]
    label = SourceFile._meta.label_lower
    repeated = History.objects.filter(
        model_label=label, object_pk__in=keys, to__in=[Graph.hashed.name, Graph.indexed.name]
    )
    return repeated.filter(attempts__gt=1).values("object_pk").distinct().count()


def _undo_a_move(root: str, console: Any) -> None:
    console.write("\nA wrong bulk move is undone\n---------------------------")
    wrong = SourceFile.stator.filter(root=root, state=Graph.indexed)
    action = Action.of(SourceFile, "move", "codeindex", "--kill: the wrong state", moves=True)
    count = wrong.move(Graph.broken, action=action)
    console.write(f"{count:,} files were moved from indexed to broken by hand: action {action.pk}.")
    console.write(f"manage.py stator undo {action.pk}")
    call_command("stator", "undo", str(action.pk), stdout=console)


@contextmanager
def _worker() -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker process, which is ended at the latest with the block."""
    command = [sys.executable, str(settings.BASE_DIR / "manage.py"), "runstator", SourceFile._meta.label]
    process = subprocess.Popen(
        [*command, "--name", "the-killed-one"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _wait_for_claims(files: QuerySet[SourceFile], process: subprocess.Popen[bytes]) -> None:
    """Wait until the worker holds files."""
    deadline = time.monotonic() + PATIENCE
    while not files.exclude(state_claim=None).exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise CommandError("the worker has claimed nothing; run manage.py runstator to see why", returncode=1)
        time.sleep(GLANCE)


def _named(files: QuerySet[SourceFile], count: int) -> str:
    names = [printable(path) for path in files.order_by("path").values_list("path", flat=True)[:MAX_NAMED]]
    more = f" and {count - len(names):,} more" * (count > len(names))
    return f"{count:,} files: {', '.join(names)}{more}"
