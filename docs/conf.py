"""How Sphinx builds the site: ``bin/docs`` calls it with warnings as errors."""

import sys
from pathlib import Path

import django
from django.conf import settings

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent / "_ext")]

# The reference is generated from modules that need an app registry, and from the help of commands.
if not settings.configured:
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=[
            *(f"django.contrib.{app}" for app in ("admin", "auth", "contenttypes", "messages", "sessions")),
            "stator",
            "tasks",
        ],
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
    )
    django.setup()

from stator import __version__  # noqa: E402

project = "Stator"
author = "the Stator developers"
copyright = author  # noqa: A001
release = version = __version__

extensions = ["sphinx.ext.autodoc", "page_links", "generated", "synonyms", "plain_text", "sphinx_copybutton"]
exclude_patterns = ["_ext", "_search"]
nitpicky = True
# Names of other projects: their inventories would need the network.
nitpick_ignore_regex = [(r"py:.*", r"(?!(stator|tasks)\.).*")]
highlight_language = "default"
autodoc_member_order = "bysource"
autodoc_typehints = "none"
smartquotes = False
# The button copies what one types: without prompts, and without what a command prints.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_search_scorer = str(ROOT / "docs" / "_search" / "scorer.js")
html_title = f"Stator {release}"
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
