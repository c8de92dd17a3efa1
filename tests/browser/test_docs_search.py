"""The search of the documentation's site, in a real browser: readers find the answer among the first three results."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.docs.site import ROOT, build
from tests.docs.test_site import QUESTIONS
from tests.installing import once
from tests.processes import wait_until

# What new users ask who know another queue, in its words; written before the pages had them.
NEW_USERS = [
    ("unique job", "guides/queues"),
    ("retry three times", "concepts/attempts"), ("countdown", "how-to/start-later"),
    ("dead letter email", "guides/queues"), ("idempotency key", "how-to/mail-once"), ("chord", "how-to/fan-out"),
    ("celery beat", "how-to/cron"), ("rate limit", "guides/actions"), ("how can I cancel a task?", "guides/queues"),
    ("visibility timeout", "concepts/leases"), ("webhook", "how-to/payment"), ("approval", "how-to/events"),
    ("progress bar", "how-to/progress"), ("dashboard", "guides/operating"), ("upgrade", "how-to/upgrade"),
    ("JavaScript", "guides/api-clients"), ("poison message", "concepts/attempts"), ("multi tenant", "how-to/databases"),
]  # fmt: skip
SEARCHES = [*((words, page) for words, page, _ in QUESTIONS), *NEW_USERS]

# As the page itself does it, without loading its index anew.
SEARCH = "document.querySelector('#search-results').replaceChildren(); Search.performSearch(arguments[0])"


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the site as ``bin/docs --serve`` has it."""

    def make(folder: Path) -> None:
        assert build(ROOT / "docs", folder) == ""

    folder = once(tmp_path_factory, "site", make) / "html"
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_page_is_among_the_first_three(window: Any, address: str) -> None:
    window.get(f"{address}/search.html?q=install")
    assert wait_until(lambda: links(window))[0] == "tutorial"
    missed = []
    for words, page in SEARCHES:
        window.execute_script(SEARCH, words)
        results = wait_until(lambda: links(window), message=f"nothing is found for {words!r}")
        missed += [(words, page, results[:3])] * (page not in results[:3])
    assert missed == []


def links(window: Any) -> list[str]:
    """The pages that are found, best first, once the search has ended."""
    if "found" not in window.execute_script("return document.querySelector('.search-summary')?.textContent ?? ''"):
        return []
    found = window.execute_script(
        "return [...document.querySelectorAll('#search-results ul.search > li > a')].map(link => link.href)"
    )
    return [link.split("/", 3)[3].partition(".html")[0] for link in found]
