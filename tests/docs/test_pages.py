"""Pages beside the site parse without a warning, and the links in them lead to files that exist."""

import io
from pathlib import Path

import pytest
from docutils import nodes
from docutils.core import publish_doctree

ROOT = Path(__file__).resolve().parents[2]
# Those under docs/ are for Sphinx: see test_site.py.
PAGES = [*ROOT.glob("*.rst"), *ROOT.glob("benchmarks/*.rst")]


def parse(page):
    """Return the document tree of the page and the warnings of the parser, as a package index reads pages."""
    warnings = io.StringIO()
    settings = {"report_level": 2, "halt_level": 5, "warning_stream": warnings}
    settings |= {"file_insertion_enabled": False, "raw_enabled": False}
    tree = publish_doctree(page.read_text(), source_path=str(page), settings_overrides=settings)
    return tree, warnings.getvalue()


def relative_links(tree):
    targets = [node["refuri"] for node in tree.findall(nodes.reference) if "refuri" in node]
    paths = [target.partition("#")[0] for target in targets if "://" not in target and not target.startswith("mailto:")]
    return [path for path in paths if path]


def dead_links(page, tree):
    """Return the relative links and images of the page that lead nowhere."""
    images = [node["uri"] for node in tree.findall(nodes.image)]
    return [path for path in [*relative_links(tree), *images] if not (page.parent / path).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_parses_and_its_links_lead_to_files(page):
    tree, warnings = parse(page)
    assert warnings == ""
    assert dead_links(page, tree) == []


def test_readme_has_no_link_that_a_package_index_cannot_follow():
    tree, _ = parse(ROOT / "README.rst")
    assert relative_links(tree) == []
    # A package index, which has no pictures, shows what they are of.
    assert all(node["alt"] for node in tree.findall(nodes.image))
