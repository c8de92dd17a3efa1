"""A directory of Python files, and ways to change it and to bring its index up to date."""

import os
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from examples.codeindex.models import SourceFile, Symbol
from examples.codeindex.reconcile import reconcile
from examples.codeindex.rows import Outcome, compare, rows_of
from examples.codeindex.scan import scan
from stator.runner import StatorRunner

_times = count(1_700_000_000_000_000_000, 1_000_000_000)


@dataclass(frozen=True)
class Tree:
    """A directory in which every change gets a time of its own, so that no test depends on the clock."""

    path: Path

    @property
    def root(self) -> str:
        return str(self.path)

    def write(self, name: str, content: str | bytes = "") -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        self.touch(name)
        return path

    def touch(self, *names: str) -> None:
        for name in names:
            moment = next(_times)
            os.utime(self.path / name, ns=(moment, moment))

    def remove(self, name: str) -> None:
        (self.path / name).unlink()

    def update(self) -> Outcome:
        """Do what the command does, with a worker in this thread."""
        before = reconcile(self.root, scan(self.root))
        runner = StatorRunner([SourceFile])
        while SourceFile.stator.due().exists():
            runner.run_single_cycle()
        return compare(before, rows_of(self.root))

    def row(self, name: str) -> SourceFile:
        return SourceFile.objects.get(root=self.root, path=name)

    def states(self) -> dict[str, str]:
        return {path: row.state for path, row in rows_of(self.root).items()}

    def symbols(self, name: str) -> list[str]:
        symbols = Symbol.objects.filter(file__root=self.root, file__path=name)
        return list(symbols.order_by("line", "pk").values_list("qualified_name", flat=True))


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """An empty directory."""
    (tmp_path / "tree").mkdir()
    return Tree(tmp_path / "tree")
