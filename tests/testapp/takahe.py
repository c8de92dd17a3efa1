"""Models as a project written for Takahe's Stator declares them."""

from django.db import models
from django.utils import timezone

from stator.exceptions import TryAgainLater
from stator.models import State, StateField, StateGraph, StatorModel


class PostStates(StateGraph):
    new = State(try_interval=300)
    fanned_out = State(externally_progressed=True)
    deleted = State(try_interval=300)
    deleted_fanned_out = State(delete_after=86400 * 7)

    edited = State(try_interval=300)
    edited_fanned_out = State(externally_progressed=True)

    new.transitions_to(fanned_out)
    fanned_out.transitions_to(deleted)
    fanned_out.transitions_to(edited)

    deleted.transitions_to(deleted_fanned_out)
    edited.transitions_to(edited_fanned_out)
    edited_fanned_out.transitions_to(edited)
    edited_fanned_out.transitions_to(deleted)

    limit = 3

    @classmethod
    def targets(cls, instance):
        return range(cls.limit)

    @classmethod
    def handle_new(cls, instance):
        for _ in cls.targets(instance):
            FanOut.objects.create(post=instance)
        return cls.fanned_out

    @classmethod
    def handle_fanned_out(cls, instance):
        raise AssertionError("nothing runs this: the state is externally progressed")

    @classmethod
    def handle_deleted(cls, instance):
        return cls.deleted_fanned_out

    @classmethod
    def handle_edited(cls, instance):
        return cls.edited_fanned_out


class FanOutStates(StateGraph):
    new = State(try_interval=600)
    sent = State(delete_after=86400)
    skipped = State(delete_after=86400)
    failed = State(delete_after=86400)

    new.transitions_to(sent)
    new.transitions_to(skipped)
    new.times_out_to(failed, seconds=86400 * 3)

    @classmethod
    async def handle_new(cls, instance):
        if instance.unreachable:
            raise TryAgainLater()
        return cls.sent


class DomainStates(StateGraph):
    outdated = State(try_interval=60 * 30, force_initial=True)
    updated = State(try_interval=60 * 60 * 24, attempt_immediately=False)

    outdated.transitions_to(updated)
    updated.transitions_to(outdated)

    @classmethod
    def handle_outdated(cls, instance):
        instance.checked = timezone.now()
        instance.save()
        return cls.updated

    @classmethod
    def handle_updated(cls, instance):
        return "outdated"


class PinStates(StateGraph):
    settled = State(try_interval=60 * 60, handler_name="check")

    settled.transitions_to(settled)

    @classmethod
    def check(cls, instance):
        return None


class Post(StatorModel):
    state = StateField(PostStates)
    content = models.TextField(default="")


class FanOut(StatorModel):
    state = StateField(FanOutStates)
    post = models.ForeignKey(Post, on_delete=models.CASCADE, related_name="fan_outs")
    unreachable = models.BooleanField(default=False)


class Domain(StatorModel):
    state = StateField(graph=DomainStates)
    checked = models.DateTimeField(null=True)


class Pin(StatorModel):
    state = StateField(PinStates)
