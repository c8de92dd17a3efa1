"""The core names no extension, and nothing the column of the state: what is still spelled may only become less.

``python -m tests.test_core`` prints the list by extension, and writes the file after lines have gone.
"""

import json
import sys
from functools import cache
from pathlib import Path

from tests import state_column
from tests.extensions import EXTENSIONS, ROOT, core_files, matches, own_files, spelled

BASELINE = Path(__file__).with_name("core_baseline.json")


@cache
def found():
    """Return how many lines of each core file spell an extension, by extension and file; then those of the column."""
    lines = {
        name: {
            path.relative_to(ROOT).as_posix(): count
            for path in core_files()
            if extension.words and (count := spelled(path, extension.words))
        }
        for name, extension in EXTENSIONS.items()
    }
    lines["column of the state"] = {
        path.relative_to(ROOT).as_posix(): count
        for path in state_column.files()
        if (count := state_column.spelled(path))
    }
    return {name: files for name, files in sorted(lines.items()) if files}


def more(now, before):
    """Return what is spelled in more lines than before, as sentences."""
    return [
        f"{path} spells {name} in {count} lines; {before.get(name, {}).get(path, 0)} are allowed"
        for name, files in now.items()
        for path, count in files.items()
        if count > before.get(name, {}).get(path, 0)
    ]


def test_core_spells_no_extension_more_than_before():
    """Put the lines into the extension; see "Where a change goes" in docs/internals.rst.

    After lines have gone, run ``python -m tests.test_core`` and commit the shorter list.
    """
    now, before = found(), json.loads(BASELINE.read_text())
    assert (more(now, before), more(before, now)) == ([], [])


def test_each_extension_is_named_here_and_has_files_or_words():
    folders = {path.name for path in ROOT.glob("*/extensions/*") if (path / "__init__.py").exists()}
    assert folders - set(EXTENSIONS) == set(), "name it in EXTENSIONS of tests/extensions.py"
    own = {name: [path.relative_to(ROOT).as_posix() for path in own_files(name)] for name in EXTENSIONS}
    assert [name for name, one in EXTENSIONS.items() if not (own[name] or one.words)] == []
    patterns = [(name, pattern) for name, one in EXTENSIONS.items() for pattern in one.files.split()]
    assert [each for each in patterns if not any(matches(path, each[1]) for path in own[each[0]])] == []


def main():
    """Print the sums, and write the list."""
    now = found()
    # What is counted for the first time begins with what there is.
    before = now | (json.loads(BASELINE.read_text()) if BASELINE.exists() else {})
    if worse := more(now, before):
        print(*worse, sep="\n", file=sys.stderr)
        raise SystemExit(1)
    for name, files in sorted(now.items(), key=lambda each: -sum(each[1].values())):
        print(f"{sum(files.values()):5} lines in {len(files):3} files spell {name}")
    print(f"{sum(sum(files.values()) for files in now.values()):5} in all")
    BASELINE.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
