"""Draw what ``benchmarks.horizon --out FILE`` has written: ``python -m benchmarks.pictures FILE FOLDER``.

One SVG for each offered load: the p99 of each second, from the due moment of a job to its start, for every system; the
phases are shaded. It is drawn by matplotlib, which is installed into ``var/peers`` when it is first needed.
"""

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.peers.install import Unavailable, installed_apart

MATPLOTLIB = ("matplotlib==3.10.8",)
SHADES = {"idle-in-tx": "#f3d9d9", "active-readers": "#dde6f3"}
MILLISECOND, LONGEST = 1, 100_000


def main() -> None:
    """Draw in a process that finds matplotlib."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.file.exists():
        parser.error(f"there is no file {options.file}; python -m benchmarks.horizon --out FILE writes one")
    if options.inside:
        _draw([json.loads(line) for line in options.file.open()], options.folder)
        return
    try:
        packages = installed_apart("matplotlib", MATPLOTLIB)
    except Unavailable as error:
        raise SystemExit(f"benchmarks.pictures: {error}") from None
    again = [sys.executable, "-m", "benchmarks.pictures", str(options.file), str(options.folder), "--inside"]
    sys.exit(subprocess.run(again, env={"PYTHONPATH": str(packages), "MPLBACKEND": "svg"}, check=False).returncode)


def _draw(lines: list[dict[str, Any]], folder: Path) -> None:
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "stator", "font.size": 9})
    folder.mkdir(parents=True, exist_ok=True)
    seconds: dict[tuple[int, float], dict[str, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
    phases: dict[tuple[int, float], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        if phase := line.get("phase"):
            # Each system has the same phases; those of the first are shaded.
            if (
                not phases[phase["rate"], phase["work"]]
                or phases[phase["rate"], phase["work"]][0]["system"] == phase["system"]
            ):
                phases[phase["rate"], phase["work"]].append(phase)
        else:
            seconds[line["rate"], line["work"]][line["system"]].append((line["second"], line["p99"]))
    for (rate, work), systems in seconds.items():
        figure, axes = plt.subplots(figsize=(8, 4))
        drawn = phases[rate, work]
        for phase, following in zip(drawn, [*drawn[1:], None], strict=True):
            start = phase["started"] - drawn[0]["started"]
            end = following["started"] - drawn[0]["started"] if following else None
            axes.axvspan(start, end or axes.get_xlim()[1], color=SHADES.get(phase["kind"], "none"), linewidth=0)
            axes.text(start, LONGEST * 0.6, phase["label"], fontsize=8, va="top")
        for name, points in sorted(systems.items()):
            axes.plot(*zip(*points, strict=True), label=name, linewidth=2 if name.startswith("stator") else 1)
        axes.set(
            yscale="log", ylim=(MILLISECOND / 2, LONGEST), xlabel="seconds", ylabel="p99, due to start, ms",
            title=f"{rate:,} jobs offered a second, {work:g} ms each",
        )  # fmt: skip
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        figure.savefig(folder / f"horizon-{rate}-{work:g}.svg", bbox_inches="tight", metadata={"Date": None})
        plt.close(figure)


if __name__ == "__main__":
    main()
