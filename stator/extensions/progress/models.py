"""How far running attempts are: what an attempt says, and the row that shows it to others."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from django.db.models import CharField, FloatField, Index, Model, UniqueConstraint, UUIDField

from stator.graph.kept import HasKept, Kept
from stator.graph.options import is_number
from stator.rows.clock import Now
from stator.rows.fields import MomentField
from stator.rows.keys import KEY_LENGTH
from stator.rows.news import HowFar, News
from stator.rows.record_tables import RecordTable, add_record_table
from stator.rows.records import conflict_target
from stator.texts import bounded, text_of

if TYPE_CHECKING:
    from stator.db.interface import Operations

TEXT_LENGTH = 200


class Reached(NamedTuple):
    """What an attempt said last about how far it is."""

    done: float
    total: float | None = None
    text: str = ""


class Progress(HowFar, Model):
    """How far the attempt on one object is, as its worker wrote it at a heartbeat.

    ``claim``: the token of the attempt. The row counts only while the object has this claim, so nothing is written when
    an attempt ends; a later attempt overwrites it, or it is pruned.
    """

    model_label = CharField(max_length=200)
    object_pk = CharField(max_length=KEY_LENGTH)
    claim = UUIDField()
    at = MomentField(db_default=Now())
    done = FloatField()
    total = FloatField(null=True, blank=True)
    text = CharField(max_length=TEXT_LENGTH, blank=True)

    class Meta:
        app_label = "stator"
        verbose_name_plural = "progress"
        constraints = [UniqueConstraint(fields=["model_label", "object_pk"], name="stator_progress_one_per_object")]
        indexes = [Index(fields=["at"], name="stator_progress_at")]

    def __str__(self) -> str:
        return f"{self.model_label} {self.object_pk}: {self.described}"


def reached(done: float, total: float | None = None, text: str = "") -> Reached:
    """Return what an attempt says; raise ``ValueError`` for numbers that no bar can show."""
    if not is_number(done) or done < 0:
        raise ValueError(f"progress() takes a number of at least 0 for what is done, not {done!r}")
    if total is not None and (not is_number(total) or total <= 0):
        raise ValueError(f"progress() takes a total above 0, or None if it is not known, not {total!r}")
    return Reached(done, total, text_of(text)[: 5 * TEXT_LENGTH])


def keep_progress(using: str, label: str, said: Iterable[tuple[object, UUID, Reached]]) -> None:
    """Write how far the attempts of these objects and claims are, in the order of their keys."""
    rows = [
        Progress(
            model_label=label, object_pk=str(pk), claim=claim, done=float(each.done),
            total=None if each.total is None else float(each.total), text=bounded(each.text, TEXT_LENGTH),
        )
        for pk, claim, each in said
    ]  # fmt: skip
    Progress.objects.using(using).bulk_create(
        sorted(rows, key=lambda row: row.object_pk),
        update_conflicts=True,
        unique_fields=conflict_target(using, "model_label", "object_pk"),
        update_fields=["claim", "at", "done", "total", "text"],
    )


# How far an attempt says it is, and what of that is written.
REACHED = Kept[Reached | None]("reached", None)
SHOWN = Kept[Reached | None]("shown", None)


def progress_of(using: str, claims: Mapping[tuple[str, str], UUID]) -> dict[tuple[str, str], Progress]:
    """Return how far attempts are, of those that said so, by the label and the key of their objects.

    ``claims``: the tokens of the objects' claims. One statement; none without claims.
    """
    if not claims:
        return {}
    labels, pks = map(set, zip(*claims, strict=True))
    rows = Progress.objects.using(using).filter(model_label__in=sorted(labels), object_pk__in=sorted(pks))
    reached = {(row.model_label, row.object_pk): row for row in rows}
    return {key: row for key, row in reached.items() if claims.get(key) == row.claim}


class ProgressNews(News):
    """How far the attempt is."""

    name = "reached"
    model = Progress

    def say(self, claim: HasKept, done: float, total: float | None = None, text: str = "") -> None:
        """Remember how far an attempt says it is; raise ``ValueError`` for numbers that no bar can show."""
        REACHED.note(claim, reached(done, total, text))

    def of(self, claim: HasKept) -> Reached | None:
        """Return how far an attempt is, if it has said so since that was last shown."""
        latest = REACHED.of(claim)
        return None if latest is SHOWN.of(claim) else latest

    def shown(self, claim: HasKept, said: Reached) -> None:
        """Note what has been shown."""
        SHOWN.note(claim, said)

    def write(self, operations: "Operations", news: Collection[tuple[Any, Reached]]) -> None:
        """Write how far these attempts are."""
        keep_progress(operations.alias, operations.label, [(claim.pk, claim.token, latest) for claim, latest in news])

    def read(self, using: str, claims: Mapping[tuple[str, str], UUID]) -> Mapping[tuple[str, str], HowFar]:
        """Return how far attempts are."""
        return progress_of(using, claims)


NEWS_OF_ATTEMPTS = ProgressNews()


add_record_table(RecordTable(model=Progress, aged="at", kept="workers", of_life=True))
