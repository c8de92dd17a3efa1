"""The admin's form for publishing a task; if the queue refuses the task, its message becomes a form error."""

from hashlib import sha256
from typing import Any
from uuid import uuid4

from django import forms

from stator.admin.fields import JSONField
from tasks.exceptions import PublishRefused
from tasks.messages import MESSAGE_FIELDS, NAME_LENGTH
from tasks.models import Queue
from tasks.queue.publishing import Published

AREA = forms.Textarea(attrs={"rows": 4, "cols": 80, "spellcheck": "false"})
OPTIONS = MESSAGE_FIELDS - {"action"}
OUTCOMES = {
    "inserted": "is published: it is new",
    "matched": "exists already with this key, and waits",
    "running": "exists already with this key, and a worker holds it",
    "duplicate": "existed already with this key, and has ended",
}


def names_field(help_text: str) -> forms.CharField:
    """Return a field for names of workers, one per line."""
    area = forms.Textarea(attrs={"rows": 2, "cols": 40})
    return forms.CharField(required=False, label="Workers", widget=area, help_text=f"{help_text}. Empty: any worker.")


def clean_names(form: forms.Form) -> list[str]:
    """Return the names in the field of a form."""
    return [name for line in form.cleaned_data["worker_ids"].splitlines() if (name := line.strip())]


class PublishForm(forms.Form):
    """One task to publish. Empty fields take the queue's value, or else the setting's."""

    queue = forms.ModelChoiceField(Queue.objects.order_by("name"))
    action = forms.CharField(
        max_length=NAME_LENGTH, help_text="The name of the action.", widget=forms.TextInput(attrs={"size": 60})
    )
    data = JSONField(  # type: ignore[assignment]
        required=False, widget=AREA, help_text="Input of the action, as JSON. Empty: null."
    )
    key = forms.CharField(
        required=False,
        max_length=NAME_LENGTH,
        widget=forms.TextInput(attrs={"size": 60}),
        help_text="Your own name for the task: a second task with the same key is not published.",
    )
    update = forms.BooleanField(
        required=False,
        label="Update",
        help_text="If a task with this key already waits, write these values into it. What is empty here stays.",
    )
    metadata = JSONField(
        required=False,
        widget=AREA,
        help_text='A JSON object of names and values, to claim and search by: {"title": "abc"}.',
    )
    priority = forms.IntegerField(
        required=False, help_text="Smaller is sooner. Empty: the current Unix time in milliseconds."
    )
    invisible_for = forms.FloatField(required=False, help_text="Seconds until it can be claimed.")
    max_attempts = forms.IntegerField(
        required=False, help_text="Number of claims without success after which it is errored."
    )
    timeout = forms.FloatField(required=False, help_text="Time limit of an attempt, in seconds.")
    lease = forms.FloatField(required=False, help_text="Seconds that a claim holds without a heartbeat.")
    heartbeat_interval = forms.FloatField(
        required=False, help_text="Seconds between the heartbeats of its worker. Empty: a third of the lease."
    )
    max_unexpected_retries = forms.IntegerField(
        required=False, help_text="Unexpected errors that one worker retries by itself. Empty: as its action says."
    )
    retention = forms.FloatField(required=False, help_text="Seconds for which it is stored after it has ended.")
    worker_ids = names_field("Names of the only workers that may claim it, one per line")
    worker_count = forms.IntegerField(required=False, help_text="Number of workers that run it, each once. Empty: one.")

    # The value differs each time that the form is shown, and stays if the form is sent twice.
    once = forms.CharField(required=False, max_length=100, widget=forms.HiddenInput, initial=lambda: uuid4().hex)

    # The publication's result, once the form is valid.
    published: Published

    clean_worker_ids = clean_names

    def clean(self) -> dict[str, Any]:
        """Publish the task if the form has no errors so far: only the queue can tell whether it refuses the task."""
        super().clean()
        values = self.cleaned_data
        if self.errors:
            return values
        options = {
            name: values[name] for name in self.fields if name in OPTIONS and self[name].value() not in (None, "")
        }
        if values["once"] and not values["key"]:
            options["key"] = self._key_of_form()
        try:
            self.published = values["queue"].publish(values["action"], update=values["update"], **options)
        except PublishRefused as refused:
            raise forms.ValidationError(" ".join(str(refused).split())) from refused
        return values

    def _key_of_form(self) -> str:
        """Return a key that is the same if the form is sent twice, and another if anything was changed in between."""
        texts = [self.cleaned_data["once"], *(f"{name}={self[name].value()}" for name in sorted(self.fields))]
        return f"form-{sha256(repr(texts).encode(errors='backslashreplace')).hexdigest()[:32]}"

    @property
    def told(self) -> str:
        """Return a sentence on the publication's result."""
        task, outcome = self.published.task, str(self.published.outcome)
        if outcome != "inserted" and not self.cleaned_data["key"]:
            return f"Task {task.pk} ({task.action}) was published already: this form was sent twice."
        wrote = "; these values were written into it" if outcome == "matched" and self.cleaned_data["update"] else ""
        return f"Task {task.pk} ({task.action}) {OUTCOMES[outcome]}{wrote} ({outcome})."
