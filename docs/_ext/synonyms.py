"""Words of the search that are not on the page: ``docs/_search/synonyms.toml`` has them by page."""

import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform

FILE = Path(__file__).resolve().parents[1] / "_search" / "synonyms.toml"
SYNONYMS: dict[str, list[str]] = tomllib.loads(FILE.read_text())


class Synonyms(SphinxTransform):
    """Add the phrases of a page to the index, which the search puts first, and their words to those of the page."""

    default_priority = 420

    def apply(self, **kwargs: Any) -> None:
        """Add the words of this page."""
        self.env.note_dependency(str(FILE))
        if not (phrases := SYNONYMS.get(self.env.docname)):
            return
        words = sorted({word for phrase in phrases for word in phrase.split()})
        entries = [("single", phrase, "", "main", None) for phrase in phrases]
        added = [addnodes.index(entries=entries), nodes.meta(name="keywords", content=", ".join(words))]
        self.document[:0] = added


def check(app: Sphinx, env: Any) -> None:
    """Refuse words for a page that does not exist."""
    if unknown := set(SYNONYMS) - env.found_docs:
        raise ExtensionError(f"docs/_search/synonyms.toml: there is no page {min(unknown)}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform with Sphinx."""
    app.add_transform(Synonyms)
    app.connect("env-updated", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
