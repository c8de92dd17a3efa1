"""Graphs and models that each show one feature of the framework."""

from typing import Any, ClassVar

from django.db import models

from stator.exceptions import TryAgainLater
from stator.graph import State, StateGraph
from stator.graph.backoff import Backoff
from stator.models import StateField, StatorModel


class StepGraph(StateGraph):
    """One state of each kind, for the statements on rows."""

    new = State(try_interval=60, backoff=30.0, max_failures=3, force_initial=True)
    slow = State(try_interval=60, lease=600)
    late = State(try_interval=60, attempt_immediately=False, expect_within=3600)
    outside = State(externally_progressed=True)
    renewed = State(try_interval=60, renamed_from="older")
    done = State(delete_after=86400)
    failed = State()

    new.transitions_to(slow, late, outside, renewed, done)
    new.times_out_to(late, seconds=7200)
    new.fails_to(failed)
    slow.transitions_to(done, new)
    late.transitions_to(done)
    outside.transitions_to(new)
    outside.times_out_to(failed, seconds=7200)
    renewed.transitions_to(done)

    @classmethod
    def handle_new(cls, instance):
        return cls.done

    @classmethod
    def handle_slow(cls, instance):
        return cls.done

    @classmethod
    def handle_late(cls, instance):
        return cls.done

    @classmethod
    def handle_renewed(cls, instance):
        return cls.done


class Step(StatorModel):
    state = StateField(StepGraph)
    name = models.CharField(max_length=50, blank=True)


class DeedGraph(StateGraph):
    """Handlers, one in a thread and one on the event loop, that do what the object's ``deed`` says."""

    called = State(try_interval=60, backoff=30.0, force_initial=True)
    awaited = State(try_interval=60, backoff=30.0)
    done = State()

    called.transitions_to(done, awaited)
    awaited.transitions_to(done, called)

    deeds: ClassVar[dict[str, Any]] = {}

    @classmethod
    def handle_called(cls, instance):
        return cls.deeds[instance.deed](instance)

    @classmethod
    async def handle_awaited(cls, instance):
        return cls.deeds[instance.deed](instance)


class Deed(StatorModel):
    state = StateField(DeedGraph)
    deed = models.CharField(max_length=50)


class PollGraph(StateGraph):
    """Waits: for a while, for a reason, and for its timeout."""

    watched = State(try_interval=60, backoff=Backoff(base=10, cap=20), force_initial=True)
    ended = State()

    watched.transitions_to(ended, watched)
    watched.times_out_to(ended, seconds=86400)

    @classmethod
    def handle_watched(cls, instance):
        if instance.reason:
            raise TryAgainLater(after=5, reason=instance.reason)


class Poll(StatorModel):
    state = StateField(PollGraph)
    reason = models.CharField(max_length=200, blank=True)


class RestGraph(StateGraph):
    """A single state, in which objects are born and stay."""

    settled = State(delete_after=60)


class Rest(StatorModel):
    state = StateField(RestGraph)


class Diary(models.Model):
    """Refers to an object that therefore cannot be deleted."""

    rest = models.ForeignKey(Rest, on_delete=models.PROTECT)


class Visible(models.Manager):
    """Hides what is marked hidden."""

    def get_queryset(self):
        return super().get_queryset().filter(hidden=False)


class KeptQuerySet(models.QuerySet):
    def delete(self):
        return self.update(deleted=True), {}


class KeptManager(models.Manager.from_queryset(KeptQuerySet)):  # type: ignore[misc]
    """Deletes softly, and hides what is deleted."""

    def get_queryset(self):
        return super().get_queryset().filter(deleted=False)


class Scrap(StatorModel):
    state = StateField(RestGraph)
    deleted = models.BooleanField(default=False)

    objects = KeptManager()

    class StatorMeta:
        delete_manager = "objects"


class PageQuerySet(models.QuerySet):
    def about(self, word):
        return self.filter(title__contains=word)


class HandMade(models.Manager):
    """Builds its queryset by hand."""

    def get_queryset(self):
        return PageQuerySet(self.model, using=self._db)


class Author(models.Model):
    name = models.CharField(max_length=50)


class PageGraph(StateGraph):
    """One step, taken on the event loop."""

    draft = State(try_interval=60)
    review = State(try_interval=60)
    published = State()

    draft.transitions_to(review, published)
    review.transitions_to(published)

    @classmethod
    async def handle_draft(cls, instance):
        return cls.review

    @classmethod
    async def handle_review(cls, instance):
        return cls.published


class Page(StatorModel):
    """A model with managers of every kind; the default one hides rows."""

    state = StateField(PageGraph)
    title = models.CharField(max_length=50, unique=True)
    hidden = models.BooleanField(default=False)
    author = models.ForeignKey(Author, on_delete=models.CASCADE, null=True, related_name="pages")
    readers = models.ManyToManyField(Author, related_name="reads")

    visible = Visible()
    objects = models.Manager()
    pages = models.Manager.from_queryset(PageQuerySet)()
    as_manager = PageQuerySet.as_manager()  # type: ignore[django-manager-missing]
    by_hand = HandMade()
