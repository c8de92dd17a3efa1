"""Run benchmarks, one after the other: those that are named, or all."""

import argparse
import ast
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
# From the shortest to the longest; only "peers" installs other software.
NAMES = (
    "throughput", "processes", "sets", "latency", "create", "related", "steps", "wal", "idle", "sqlite", "mariadb",
    "backend", "queues", "http", "peers",
    "claims", "memory", "partitions", "spread", "pages", "churn", "mixed", "row_path", "walks", "record_cost",
    "schemas", "shadow", "undo", "horizon",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    """Run benchmarks; return 1 if any failed, 2 for unknown names."""
    parser = argparse.ArgumentParser(prog="bin/bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a benchmark (default: all)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to check that they run, not to measure")
    parser.add_argument("--list", action="store_true", help="print the names and what each measures")
    options = parser.parse_intermixed_args(arguments)
    if unknown := [name for name in options.names if name not in NAMES]:
        print(f"bin/bench: {unknown[0]!r} is not a benchmark; choose from {', '.join(NAMES)}", file=sys.stderr)
        return 2
    if options.list:
        width = max(map(len, NAMES))
        for name in NAMES:
            print(f"{name.ljust(width)}  {summary(name)}")
        return 0
    quick = ["--quick"] if options.quick else []
    if quick:
        print("With --quick the figures mean nothing; a missed target does not either.")
    failed = [name for name in options.names or NAMES if run(name, quick)]
    if failed:
        print(f"bin/bench: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def summary(name: str) -> str:
    """Return the first line of a benchmark's docstring."""
    path = HERE / f"{name}.py"
    source = (path if path.exists() else HERE / name / "__main__.py").read_text()
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


def run(name: str, options: list[str]) -> int:
    """Run one benchmark in a process of its own, since each sets up Django; return its exit code."""
    print(f"== {name}", file=sys.stderr)
    return subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", *options], cwd=HERE.parent, check=False
    ).returncode


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
