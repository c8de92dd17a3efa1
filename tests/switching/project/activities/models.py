"""Graphs and models that know nothing but the names that both packages have."""

from django.db import models

from activities import configuration
from stator.models import State, StateField, StateGraph, StatorModel

DAY = 86400


class PostStates(StateGraph):
    """To those who read it."""

    new = State(try_interval=3600, force_initial=True)
    fanned_out = State(externally_progressed=True)
    edited = State(try_interval=600)
    read = State()
    deleted = State(delete_after=7 * DAY)

    new.transitions_to(fanned_out)
    fanned_out.transitions_to(edited)
    fanned_out.transitions_to(read)
    fanned_out.times_out_to(deleted, seconds=10 * DAY)
    edited.transitions_to(fanned_out)

    @classmethod
    def handle_new(cls, instance):
        """Note what is configured; one that is said to wait does."""
        instance.note = configuration.current["greeting"]
        instance.save()
        return None if instance.name == "patient" else cls.fanned_out

    @classmethod
    def handle_edited(cls, instance):
        """As above."""
        return cls.handle_new(instance)


class DomainStates(StateGraph):
    """Looked up once a day."""

    outdated = State(try_interval=1800, force_initial=True)
    updated = State(try_interval=DAY, attempt_immediately=False)

    outdated.transitions_to(updated)
    updated.transitions_to(outdated)

    @classmethod
    def handle_outdated(cls, instance):
        """Note that it was looked up."""
        instance.lookups += 1
        instance.save()
        return cls.updated

    @classmethod
    def handle_updated(cls, instance):
        """Its day is over."""
        return cls.outdated


class Setting(models.Model):
    """The configuration."""

    greeting = models.CharField(max_length=20)


class Post(StatorModel):
    """Has rows in every kind of state."""

    state = StateField(graph=PostStates)
    name = models.CharField(max_length=20)
    note = models.CharField(max_length=20, default="")


class Domain(StatorModel):
    """Most of them are not due for hours."""

    state = StateField(DomainStates)
    lookups = models.IntegerField(default=0)
