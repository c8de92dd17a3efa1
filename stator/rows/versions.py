"""Versions of code: which processes run which, and how they differ."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from stator.texts import listed

HERE = "this process"

# The states of a graph by name, each with its fingerprint.
States = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Version:
    """One version of something that has names, such as the states of a graph, and the processes that run it.

    ``workers``: live workers as ``host/pid``. ``here``: this process has it too. ``names``: None if not published.
    """

    workers: tuple[str, ...]
    names: States | None
    here: bool = False

    @property
    def processes(self) -> list[str]:
        """The processes that run it."""
        return [*self.workers, *([HERE] if self.here else [])]


def compared(versions: Collection[Version], what: str, how: str = "") -> str:
    """Return a sentence on the versions that run: that there are several, what follows, and who knows what; "" for one.

    ``what``: as in "2 versions of its graph run"; ``how``: as in "new differs in options or transitions".
    """
    running = [version for version in versions if version.processes]
    if len(running) < 2:
        return ""
    published = [version.names for version in running if version.names is not None]
    common = set(published[0]).intersection(*published[1:]) if published else set()
    some = {name for names in published for name in names} - common
    # Those that know something come first: the others lack it.
    by_names = sorted(running, key=lambda version: version.names is None or not some.intersection(version.names))
    none = "that" if len(some) == 1 else "none of these"
    parts = [f"{listed(version.processes)}{_known(version, some, none)}" for version in by_names]
    effect = "so a process leaves alone what only others know" if some else "so objects are treated by either"
    if changed := sorted(name for name in common if len({names[name] for names in published}) > 1):
        parts.append(f"{listed(changed)} differ{'s' if len(changed) == 1 else ''} {how}".rstrip())
    return f"{len(running)} {what}, {effect}: {'; '.join(parts)}."


def _known(version: Version, some: set[str], none: str) -> str:
    """Say which names a version has that not all have; ``none``: what it does not know if it has none of them."""
    if version.names is None or not some:
        return ""
    alone = len(version.processes) == 1
    if known := sorted(some & set(version.names)):
        return f" {'knows' if alone else 'know'} {listed(known)}"
    return f" {'does' if alone else 'do'} not" if none == "that" else f" {'knows' if alone else 'know'} {none}"
