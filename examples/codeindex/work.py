"""Running a worker over the files until none of them has anywhere to go."""

from time import sleep

from examples.codeindex.graph import SourceFileGraph as Graph
from examples.codeindex.models import SourceFile
from stator.runner import StatorRunner

PAUSE = 1.0


def work_until_rest(root: str) -> None:
    """Attempt files, in this process, until all below a root are at rest, or until told to stop.

    Waits for what nobody can attempt yet: files that a worker holds, perhaps a dead one, until its lease runs out, and
    files to be tried again after an error. Files in quarantine are waited for in vain, so they are not.
    """
    runner = StatorRunner([SourceFile], until_idle=True)
    runner.run()
    while _waits(root):
        sleep(PAUSE)
        runner.run()


def _waits(root: str) -> bool:
    files = SourceFile.stator.filter(root=root).in_state(*Graph.automatic_states)
    # A worker ends with files still due only when it was told to stop.
    return not files.due().exists() and files.count() > files.quarantined().count()
