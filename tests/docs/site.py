"""The site as Sphinx builds it, and what a reader finds in it."""

import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def python_with_sphinx() -> str:
    """Return this Python, or that of ``bin/setup``, which installs what is missing."""
    if all(find_spec(name) for name in ("sphinx", "furo")):
        return sys.executable
    return subprocess.run([ROOT / "bin" / "setup"], capture_output=True, text=True, check=True).stdout.strip()


def build(source: Path, site: Path, *options: str) -> str:
    """Build pages into ``site/html`` as ``bin/docs`` does; return the warnings, each of which is an error."""
    command = [python_with_sphinx(), "-m", "sphinx", "--quiet", "--fail-on-warning", "--nitpicky", *options]
    command += ["-c", str(ROOT / "docs"), "-d", str(site / "doctrees"), str(source), str(site / "html")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert bool(ended.returncode) == bool(ended.stderr), ended.stderr
    return ended.stderr


class Page(HTMLParser):
    """The headings, links and anchors of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.links: list[str] = []
        self.anchors: set[str] = set()
        text = path.read_text()
        self.headings = {
            unescape(re.sub(r"<[^>]+>", "", title)) for title in re.findall(r'<h\d>(.*?)<a class="headerlink"', text)
        }
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note where an element leads, and by which name links find it."""
        given = dict(attrs)
        self.links += [given[name] or "" for name in ("href", "src") if name in given]
        self.anchors |= {given[name] or "" for name in ("id", "name") if name in given}


class Site:
    """Every page that was built."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "html"
        self.pages = {path.resolve(): Page(path) for path in self.folder.rglob("*.html")}
        with (folder / "doctrees" / "environment.pickle").open("rb") as file:
            self.contents: dict[str, list[str]] = _Contents(file).load().toctree_includes

    def page(self, name: str) -> Page:
        """Return the page of a document, as ``guides/testing``."""
        return self.pages[(self.folder / f"{name}.html").resolve()]

    def dead_links(self) -> Iterator[str]:
        """Yield the links within the site that lead to no page, or to no place in one."""
        for path, page in self.pages.items():
            for link in page.links:
                target, _, anchor = link.partition("#")
                if ":" in target or target.startswith("//"):
                    continue
                found = (path.parent / target.partition("?")[0]).resolve() if target else path
                if not found.exists() or (anchor and found in self.pages and anchor not in self.pages[found].anchors):
                    yield f"{path.relative_to(self.folder.resolve())}: {link}"

    def reachable(self) -> set[str]:
        """Return the documents that a reader reaches from the first page by the contents."""
        found: set[str] = set()
        waiting = ["index"]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self.contents.get(name, [])
        return found


class _Contents(pickle.Unpickler):
    """Reads the environment of Sphinx without Sphinx, which another Python may have."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except (ImportError, AttributeError):
            return type(name, (_Any,), {})


class _Any:
    def __init__(self, *args: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        self.__dict__.update(state if isinstance(state, dict) else {})
