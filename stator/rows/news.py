"""News: what attempts say of themselves while they run; heartbeats write it, for those who look."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import Model

from stator.graph.kept import HasKept


class HowFar:
    """How far something is: ``done`` of ``total``, if that is known, with a text."""

    done: Any
    total: Any
    text: Any

    @property
    def percent(self) -> int | None:
        """How much is done, from 0 to 100; None without a total."""
        return int(100 * min(1.0, self.done / self.total)) if self.total else None

    @property
    def described(self) -> str:
        """The numbers and the text as one phrase: ``40 of 100 (40 %), page 40 of 100``."""
        of = f" of {_number(self.total)} ({self.percent} %)" if self.total else ""
        return f"{_number(self.done)}{of}{', ' if self.text else ''}{self.text}"

    def as_dict(self) -> dict[str, object]:
        """Return the progress for JSON."""
        return {"done": self.done, "total": self.total, "percent": self.percent, "text": self.text}


@dataclass(slots=True)
class Portion(HowFar):
    """How far something is that has no row of its own for that."""

    done: float
    total: float | None = None
    text: str = ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


class News:
    """One kind of news, which an extension brings.

    ``name``: in messages between processes. ``model``: the table that has them.
    """

    name: ClassVar[str]
    model: ClassVar[type[Model]]

    def say(self, claim: HasKept, *values: Any) -> None:
        """Remember what an attempt says; any thread may call it."""
        raise NotImplementedError

    def of(self, claim: HasKept) -> Any:
        """Return what an attempt has said since it was last shown; None for nothing. Its items are JSON."""
        raise NotImplementedError

    def shown(self, claim: HasKept, said: Any) -> None:
        """Note what has been shown."""
        raise NotImplementedError

    def write(self, operations: Any, news: Collection[tuple[HasKept, Any]]) -> None:
        """Write what attempts on rows of one model have said."""
        raise NotImplementedError

    def read(self, using: str, claims: Mapping[tuple[str, str], UUID]) -> Mapping[tuple[str, str], HowFar]:
        """Return what is written of attempts, by the label and the key of their objects, in one statement.

        ``claims``: the tokens of the objects' claims.
        """
        raise NotImplementedError


# The kinds of news, in the order of the table of extensions.
NEWS: list[News] = []


def has_news(claim: HasKept) -> bool:
    """Return whether an attempt has said anything that has not been shown."""
    return bool(claim.kept) and any(kind.of(claim) is not None for kind in NEWS)


def write_news(operations: object, claims: Iterable[HasKept]) -> None:
    """Write what attempts on rows of one model have said since the last time."""
    kept = [claim for claim in claims if claim.kept]
    for kind in NEWS if kept else ():
        if news := [(claim, said) for claim in kept if (said := kind.of(claim)) is not None]:
            kind.write(operations, news)
            for claim, said in news:
                kind.shown(claim, said)


def send_news(claim: HasKept, send: Callable[[Any], object]) -> None:
    """Send what an attempt has said since the last time to the process that writes it."""
    for kind in NEWS if claim.kept else ():
        if (said := kind.of(claim)) is not None:
            kind.shown(claim, said)
            send({kind.name: list(said)})


def take_news(claim: HasKept, name: str, *values: object) -> None:
    """Remember what an attempt has said elsewhere; news of a kind that is not there are dropped."""
    for kind in NEWS:
        if kind.name == name:
            kind.say(claim, *values)


def how_far(using: str, claims: Mapping[tuple[str, str], UUID]) -> dict[tuple[str, str], HowFar]:
    """Return how far attempts are, of those that said so, by the label and the key of their objects.

    ``claims``: the tokens of the objects' claims. One statement for each kind of news; none without claims.
    """
    return {key: shown for kind in NEWS if claims for key, shown in kind.read(using, claims).items()}
