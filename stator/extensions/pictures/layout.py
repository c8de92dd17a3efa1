"""The layout of a picture of a graph: boxes in columns from left to right, and lines. Numbers, no markup."""

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

BOX_HEIGHT, BETWEEN_ROWS = 40.0, 24.0
NARROWEST, GAP, LABEL_ROOM, MARGIN = 96.0, 56.0, 40.0, 12.0
# Pixels of a letter, at the style sheet's sizes for names and for labels of lines.
LETTER, SMALL_LETTER = 8.0, 6.4
SWEEPS = 8
# A picture of more states is unreadable on a screen.
MAX_STATES = 60
# Distance between an edge and the edge back beside it.
STRAND = 10.0

Pair = tuple[str, str]
Point = tuple[float, float]
Chains = Mapping[Pair, list[str]]


@dataclass(frozen=True, slots=True)
class Size:
    """Sizes of boxes: their height, and the widths for short and for long names."""

    height: float = BOX_HEIGHT
    narrowest: float = NARROWEST
    widest: float = 1000.0


SIZE = Size()


@dataclass(frozen=True, slots=True)
class Box:
    """A node, or a point of height 0 where a line crosses a column; ``x`` and ``y`` are its upper left corner."""

    name: str
    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """The right end."""
        return self.x + self.width

    @property
    def middle(self) -> float:
        """The horizontal centre."""
        return self.x + self.width / 2

    @property
    def centre(self) -> float:
        """The vertical centre."""
        return self.y + self.height / 2


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """An edge: the ``d`` of an SVG path from source to target, and the middle of its label."""

    source: str
    target: str
    path: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Picture:
    """Boxes and lines within ``width`` and ``height``."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: tuple[DrawnEdge, ...]


@lru_cache(maxsize=256)
def lay_out(names: tuple[str, ...], edges: tuple[tuple[str, str, str], ...], size: Size = SIZE) -> Picture:
    """Return the picture of a graph, first name at the left; ``edges``: ``(source, target, label)``, each pair once."""
    labels = {(source, target): label for source, target, label in edges}
    pairs = _pairs(names, labels)
    ranks = _ranks(names, pairs)
    chains = {pair: _chain(pair, ranks) for pair in pairs}
    columns = _ordered(ranks, chains)
    boxes = _boxes(columns, set(names), chains, labels, size)
    lines = [*_strands(chains, boxes, labels), *_loops(boxes, labels)]
    return Picture(
        width=max(box.right for box in boxes.values()) + MARGIN,
        height=max(box.y + box.height for box in boxes.values()) + MARGIN,
        boxes=tuple(boxes[name] for name in names),
        lines=tuple(lines),
    )


# Columns


def _pairs(names: tuple[str, ...], labels: Mapping[Pair, str]) -> list[Pair]:
    """Return the edges as pairs of left and right, without cycles: edges that would close a cycle are reversed."""
    following: dict[str, list[str]] = {name: [] for name in names}
    for source, target in labels:
        if source != target:
            following[source].append(target)
    back = _back(names, following)
    turned = ((pair[1], pair[0]) if pair in back else pair for pair in labels if pair[0] != pair[1])
    return list(dict.fromkeys(turned))


def _back(names: tuple[str, ...], following: Mapping[str, list[str]]) -> set[Pair]:
    """Return the edges that close a cycle in a depth-first search; iterative, so that no path is too long."""
    back: set[Pair] = set()
    done: set[str] = set()
    for start in names:
        path: dict[str, None] = {}
        # ``None`` marks the return from the last of the path.
        todo: list[str | None] = [start]
        while todo:
            name = todo.pop()
            if name is None:
                done.add(path.popitem()[0])
            elif name not in done and name not in path:
                path[name] = None
                back.update((name, other) for other in following[name] if other in path)
                todo += [None, *reversed(following[name])]
    return back


def _ranks(names: tuple[str, ...], pairs: list[Pair]) -> dict[str, int]:
    """Return the column of each node: the length of the longest path to it."""
    ranks = dict.fromkeys(names, 0)
    for _ in names:
        for left, right in pairs:
            ranks[right] = max(ranks[right], ranks[left] + 1)
    return ranks


def _chain(pair: Pair, ranks: Mapping[str, int]) -> list[str]:
    """Return the places that a line passes: its ends, and one in each column between."""
    left, right = pair
    # No state has such a name: a NUL is never stored.
    between = (f"\0{left}\0{right}\0{rank}" for rank in range(ranks[left] + 1, ranks[right]))
    return [left, *between, right]


def _ordered(ranks: Mapping[str, int], chains: Chains) -> list[list[str]]:
    """Return the places of each column from top to bottom, so that few lines cross."""
    columns: list[list[str]] = [[] for _ in range(max(ranks.values()) + 1)]
    for name, rank in ranks.items():
        columns[rank].append(name)
    for (left, _), chain in chains.items():
        for step, name in enumerate(chain[1:-1], start=1):
            columns[ranks[left] + step].append(name)
    best, fewest = [list(column) for column in columns], _crossings(columns, chains)
    for sweep in range(SWEEPS):
        _sweep(columns, chains, rightward=sweep % 2 == 0)
        if (crossings := _crossings(columns, chains)) < fewest:
            best, fewest = [list(column) for column in columns], crossings
    return best


def _sweep(columns: list[list[str]], chains: Chains, *, rightward: bool) -> None:
    """Put each place of a column at the average position of its neighbours in the column before."""
    near = _neighbours(chains, of_the_right=rightward)
    for fixed, column in pairwise(columns if rightward else columns[::-1]):
        at = {name: place for place, name in enumerate(fixed)}
        own = {name: place for place, name in enumerate(column)}
        wanted = {name: _mean([at[other] for other in near.get(name, ())], own[name]) for name in column}
        column.sort(key=wanted.__getitem__)


def _neighbours(chains: Chains, *, of_the_right: bool) -> dict[str, list[str]]:
    """Return the neighbours of each place along lines, to its left or to its right."""
    near: dict[str, list[str]] = {}
    for chain in chains.values():
        for left, right in pairwise(chain):
            near.setdefault(right if of_the_right else left, []).append(left if of_the_right else right)
    return near


def _mean(values: list[float] | list[int], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _crossings(columns: list[list[str]], chains: Chains) -> int:
    at = {name: (rank, place) for rank, column in enumerate(columns) for place, name in enumerate(column)}
    steps: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for chain in chains.values():
        for left, right in pairwise(chain):
            steps[at[left][0]].append((at[left][1], at[right][1]))
    return sum(_inversions(sorted(pairs)) for pairs in steps.values())


def _inversions(pairs: list[tuple[int, int]]) -> int:
    """Return how many lines that start higher end lower."""
    count, ends = 0, list[int]()
    for _, end in pairs:
        count += len(ends) - bisect_right(ends, end)
        insort(ends, end)
    return count


# Places


def _boxes(
    columns: list[list[str]], names: set[str], chains: Chains, labels: Mapping[Pair, str], size: Size
) -> dict[str, Box]:
    """Return a box for each place; boxes of a column are equally wide."""
    heights = {name: size.height if name in names else 0.0 for column in columns for name in column}
    y = _heights(columns, chains, heights)
    gaps = [GAP] * len(columns)
    rank = {name: number for number, column in enumerate(columns) for name in column}
    for left, right in chains:
        longest = max(len(labels.get(pair, "")) for pair in ((left, right), (right, left)))
        gaps[rank[left]] = max(gaps[rank[left]], LABEL_ROOM + SMALL_LETTER * longest)
    boxes, x = {}, MARGIN
    for number, column in enumerate(columns):
        wanted = max(LETTER * len(name) + 28 for name in column if name in names)
        width = min(max(wanted, size.narrowest), size.widest)
        boxes.update({name: Box(name, x, y[name], width, heights[name]) for name in column})
        x += width + gaps[number]
    return boxes


def _heights(columns: list[list[str]], chains: Chains, heights: Mapping[str, float]) -> dict[str, float]:
    """Return the upper edge of each place, so that lines are as straight as the order allows."""
    y = {name: float(place) for column in columns for place, name in enumerate(column)}
    near = [_neighbours(chains, of_the_right=right) for right in (True, False)]
    for sweep in range(SWEEPS):
        for column in columns if sweep % 2 == 0 else columns[::-1]:
            wanted = [_mean([y[other] for side in near for other in side.get(name, ())], y[name]) for name in column]
            y.update(zip(column, _apart(wanted, [heights[name] for name in column]), strict=True))
    tallest = max(heights.values())
    top = min(y[name] - heights[name] / 2 for name in y)
    # Room above the highest box for an edge from it to itself.
    return {name: middle - heights[name] / 2 - top + MARGIN + tallest / 2 for name, middle in y.items()}


def _apart(wanted: list[float], heights: list[float]) -> list[float]:
    """Return centres as near to the wanted ones as the distance between boxes allows, in the same order."""
    down, up = list(wanted), list(wanted)
    steps = [(one + other) / 2 + BETWEEN_ROWS for one, other in pairwise(heights)]
    for place, step in enumerate(steps, start=1):
        down[place] = max(down[place], down[place - 1] + step)
    for place, step in reversed(list(enumerate(steps))):
        up[place] = min(up[place], up[place + 1] - step)
    # Both keep the distance, and so does their average.
    return [(low + high) / 2 for low, high in zip(down, up, strict=True)]


# Lines


def _strands(chains: Chains, boxes: Mapping[str, Box], labels: Mapping[Pair, str]) -> list[DrawnEdge]:
    """Return the line of each edge between two boxes; two edges between the same boxes run side by side."""
    strands = [(pair, edge) for pair in chains for edge in (pair, pair[::-1]) if edge in labels]
    leaving = _ports(strands, chains, boxes, end=0)
    coming = _ports(strands, chains, boxes, end=1)
    lines = []
    for pair, edge in strands:
        aside = STRAND / 2 if edge == pair else -STRAND / 2
        points = [(boxes[pair[0]].right, leaving[pair, edge])]
        for name in chains[pair][1:-1]:
            y = boxes[name].centre + (aside if edge[::-1] in labels else 0)
            points += [(boxes[name].x, y), (boxes[name].right, y)]
        points.append((boxes[pair[1]].x, coming[pair, edge]))
        lines.append(_line(edge, points if edge == pair else points[::-1]))
    return lines


def _ports(
    strands: list[tuple[Pair, Pair]], chains: Chains, boxes: Mapping[str, Box], *, end: int
) -> dict[tuple[Pair, Pair], float]:
    """Return the height where each line leaves its left box, or with ``end=1`` reaches its right one."""
    touching: dict[str, list[tuple[Pair, Pair]]] = {}
    for strand in strands:
        touching.setdefault(strand[0][end], []).append(strand)
    ports = {}
    for name, own in touching.items():
        own.sort(key=lambda strand: boxes[chains[strand[0]][-2 if end else 1]].centre)
        step = boxes[name].height / (len(own) + 1)
        ports.update({strand: boxes[name].y + step * place for place, strand in enumerate(own, start=1)})
    return ports


def _line(edge: Pair, points: list[Point]) -> DrawnEdge:
    """Return a line with curves between columns, straight across a column."""
    path = f"M{_point(points[0])}"
    for number, (one, other) in enumerate(pairwise(points)):
        half = (one[0] + other[0]) / 2
        turns = "" if number % 2 else f"{_point((half, one[1]))} {_point((half, other[1]))} "
        path += f" {'C' if turns else 'L'}{turns}{_point(other)}"
    middle = len(points) // 2
    (x, y), (other_x, other_y) = points[middle - 1], points[middle]
    return DrawnEdge(*edge, path, round((x + other_x) / 2, 1), round((y + other_y) / 2, 1))


def _loops(boxes: Mapping[str, Box], labels: Mapping[Pair, str]) -> list[DrawnEdge]:
    """Return the lines of edges from a box to itself, above the box."""
    lines = []
    for source, target in labels:
        if source == target:
            box = boxes[source]
            points = [(box.middle + aside, box.y - above) for aside, above in ((-12, 0), (-24, 24), (24, 24), (12, 0))]
            first, *others = map(_point, points)
            lines.append(DrawnEdge(source, target, f"M{first} C{' '.join(others)}", box.middle, box.y - 18))
    return lines


def _point(point: Point) -> str:
    return f"{point[0]:.1f},{point[1]:.1f}"
