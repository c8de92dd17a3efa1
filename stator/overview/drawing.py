"""Where the boxes and lines of a graph go: states in columns from left to right, lines bent around what is between.

Knows nothing of Django and of markup. Units are those of an SVG.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

WIDTH, HEIGHT = 148, 64
BETWEEN_COLUMNS, BETWEEN_ROWS = 80, 30
# What a line takes of a column that it only passes.
LANE = 26
MARGIN = 24
SWEEPS = 12

# A state, or the place where the line of an edge passes a column: ``(name of the edge's ends, column)``.
Item = tuple[str, str, int]
Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Box:
    """One state; ``x`` and ``y`` are its upper left corner."""

    name: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Line:
    """One edge as the path of an SVG, and the middle of its label."""

    source: str
    to: str
    path: str
    x: float
    y: float
    # Whether it leads back to a state that comes earlier.
    back: bool = False


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph with the place of everything in it."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


def draw(names: Iterable[str], edges: Iterable[Pair]) -> Drawing:
    """Lay out states, the initial one first, and the edges between them; an edge that is given twice is one line."""
    states, pairs = list(names), list(dict.fromkeys(edges))
    back = _back_edges(states, pairs)
    onward = {(to, source) if (source, to) in back else (source, to) for source, to in pairs if source != to}
    column = _columns(states, onward)
    columns, links = _with_lanes(states, sorted(onward), column)
    _untangle(columns, links)
    y = _heights(columns, links)
    top = min(y.values(), default=0.0) - HEIGHT / 2 - MARGIN
    x = {item: MARGIN + item[2] * (WIDTH + BETWEEN_COLUMNS) for items in columns for item in items}
    boxes = tuple(Box(name, x[_state(name, column)], y[_state(name, column)] - top - HEIGHT / 2) for name in states)
    corner = {box.name: box for box in boxes}
    lines = tuple(_line(pair, pair in back, corner, column, {item: y[item] - top for item in y}) for pair in pairs)
    width = max((box.x for box in boxes), default=0.0) + WIDTH + MARGIN
    return Drawing(width, max(y.values(), default=0.0) - top + HEIGHT / 2 + MARGIN, boxes, lines)


def _back_edges(states: list[str], pairs: list[Pair]) -> set[Pair]:
    """Edges that close a circle, as a walk from the first state finds them."""
    following: dict[str, list[str]] = defaultdict(list)
    for source, to in pairs:
        following[source].append(to)
    back: set[Pair] = set()
    done: set[str] = set()
    for start in states:
        path: list[str] = []
        # ``None`` marks the return from the state on top of the path.
        todo: list[str | None] = [start]
        while todo:
            name = todo.pop()
            if name is None:
                done.add(path.pop())
            elif name not in done and name not in path:
                path.append(name)
                back.update((name, to) for to in following[name] if to in path and to != name)
                todo += [None, *reversed(following[name])]
    return back


def _columns(states: list[str], onward: set[Pair]) -> dict[str, int]:
    """The column of each state: one to the right of everything that leads there."""
    column = dict.fromkeys(states, 0)
    for _ in states:
        for source, to in onward:
            column[to] = max(column[to], column[source] + 1)
    return column


def _state(name: str, column: dict[str, int]) -> Item:
    return name, "", column[name]


def _with_lanes(
    states: list[str], onward: list[Pair], column: dict[str, int]
) -> tuple[list[list[Item]], dict[Item, list[Item]]]:
    """What is in each column, and what each item is linked to in the columns beside it."""
    columns: list[list[Item]] = [[] for _ in range(max(column.values(), default=0) + 1)]
    links: dict[Item, list[Item]] = defaultdict(list)
    for name in states:
        columns[column[name]].append(_state(name, column))
    for source, to in onward:
        lanes = [(source, to, number) for number in range(column[source] + 1, column[to])]
        for lane in lanes:
            columns[lane[2]].append(lane)
        chain = [_state(source, column), *lanes, _state(to, column)]
        for one, other in pairwise(chain):
            links[one].append(other)
            links[other].append(one)
    return columns, links


def _untangle(columns: list[list[Item]], links: dict[Item, list[Item]]) -> None:
    """Order each column by where its items are linked to, to and fro, so that fewer lines cross."""
    for sweep in range(SWEEPS):
        place = {item: number - len(items) / 2 for items in columns for number, item in enumerate(items)}
        ordered = columns if sweep % 2 == 0 else list(reversed(columns))
        before = -1 if sweep % 2 == 0 else 1
        for items in ordered:
            near = {item: [place[other] for other in links[item] if other[2] == item[2] + before] for item in items}
            items.sort(key=lambda item: sum(near[item]) / len(near[item]) if near[item] else place[item])
            place.update({item: number - len(items) / 2 for number, item in enumerate(items)})


def _heights(columns: list[list[Item]], links: dict[Item, list[Item]]) -> dict[Item, float]:
    """The middle of each item: near what it is linked to, and apart from its neighbours in the column."""
    y = {item: 0.0 for items in columns for item in items}
    for sweep in range(SWEEPS):
        for items in columns if sweep % 2 == 0 else reversed(columns):
            wanted = [_mean([y[other] for other in links[item]], y[item]) for item in items]
            placed: list[float] = []
            for number, item in enumerate(items):
                least = placed[-1] + _apart(items[number - 1], item) if placed else wanted[0]
                placed.append(max(wanted[number], least))
            shift = _mean([want - got for want, got in zip(wanted, placed, strict=True)], 0.0)
            y.update({item: got + shift for item, got in zip(items, placed, strict=True)})
    return y


def _mean(values: list[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _apart(one: Item, other: Item) -> float:
    heights = [LANE if item[1] else HEIGHT + BETWEEN_ROWS for item in (one, other)]
    return sum(heights) / 2


def _line(pair: Pair, back: bool, corner: dict[str, Box], column: dict[str, int], middle: dict[Item, float]) -> Line:
    source, to = pair
    first, last = corner[source], corner[to]
    if source == to:
        x, y = first.x + WIDTH / 2, first.y
        return Line(source, to, f"M{x - 18:.0f},{y:.0f} c-8,-24 44,-24 36,0", x, y - 18, back=True)
    # Lines to and fro between two states are drawn side by side.
    aside = 9.0 if back else -9.0
    start = (first.x + (0 if back else WIDTH), first.y + HEIGHT / 2 + aside)
    end = (last.x + (WIDTH if back else 0), last.y + HEIGHT / 2 + aside)
    ends = (to, source) if back else pair
    numbers = range(column[ends[0]] + 1, column[ends[1]])
    lanes = [(number, middle[(*ends, number)] + aside * 0.7) for number in (reversed(numbers) if back else numbers)]
    stops = [start]
    for number, y in lanes:
        x = MARGIN + number * (WIDTH + BETWEEN_COLUMNS)
        stops += [(x + WIDTH, y), (x, y)] if back else [(x, y), (x + WIDTH, y)]
    stops.append(end)
    return Line(source, to, _path(stops), *_label(stops), back=back)


def _path(stops: list[tuple[float, float]]) -> str:
    parts = [f"M{stops[0][0]:.0f},{stops[0][1]:.0f}"]
    for number in range(1, len(stops)):
        (x0, y0), (x1, y1) = stops[number - 1], stops[number]
        if number % 2:
            middle = (x0 + x1) / 2
            parts.append(f"C{middle:.0f},{y0:.0f} {middle:.0f},{y1:.0f} {x1:.0f},{y1:.0f}")
        else:
            parts.append(f"L{x1:.0f},{y1:.0f}")
    return " ".join(parts)


def _label(stops: list[tuple[float, float]]) -> tuple[float, float]:
    """In the middle of the only bend, or of the first lane, where nothing else is."""
    (x0, y0), (x1, y1) = (stops[0], stops[1]) if len(stops) == 2 else (stops[1], stops[2])
    return (x0 + x1) / 2, (y0 + y1) / 2
