"""A worker that runs until all files are at rest."""

from time import sleep

from examples.codeindex.graph import SourceFileGraph as Graph
from examples.codeindex.models import SourceFile
from stator.runner import StatorRunner

PAUSE = 1.0


def work_until_rest(root: str) -> None:
    """Attempt files in this process until all files below a root are at rest, or a signal stops it.

    It waits for files that another worker holds until their leases end, and for files that are due again after an
    error. It does not wait for files in quarantine.
    """
    runner = StatorRunner([SourceFile], until_idle=True)
    runner.run()
    while _waits(root):
        sleep(PAUSE)
        runner.run()


def _waits(root: str) -> bool:
    files = SourceFile.stator.filter(root=root).in_state(*Graph.automatic_states)
    # If files are still due, a signal has stopped the worker.
    return not files.due().exists() and files.count() > files.quarantined().count()
