"""The admin's form for publishing a task; if the queue refuses the task, its message becomes a form error."""

from typing import Any

from django import forms

from stator.admin.fields import JSONField
from tasks.exceptions import PublishRefused
from tasks.messages import NAME_LENGTH
from tasks.models import Queue

AREA = forms.Textarea(attrs={"rows": 4, "cols": 80, "spellcheck": "false"})
OPTIONS = (
    "key", "priority", "metadata", "lease", "timeout", "invisible_for", "max_attempts", "retention", "worker_ids",
    "worker_count",
)  # fmt: skip
TOLD = {
    "inserted": "is published: it is new",
    "matched": "is there already under this key, and waits",
    "running": "is there already under this key, and a worker has it",
    "duplicate": "was there already under this key, and has ended",
}


class PublishForm(forms.Form):
    """One task to publish. Empty fields take the queue's value, or else the setting's."""

    queue = forms.ModelChoiceField(Queue.objects.order_by("name"))
    action = forms.CharField(
        max_length=NAME_LENGTH, help_text="The name of what is to be done.", widget=forms.TextInput(attrs={"size": 60})
    )
    data = JSONField(  # type: ignore[assignment]
        required=False, widget=AREA, help_text="JSON, what the action gets. Empty: null."
    )
    key = forms.CharField(
        required=False,
        max_length=NAME_LENGTH,
        widget=forms.TextInput(attrs={"size": 60}),
        help_text="A name of your own: a second task of the same key is not published.",
    )
    update = forms.BooleanField(
        required=False,
        label="Update",
        help_text="If a task of this key waits already, give it what is written here.",
    )
    metadata = JSONField(
        required=False,
        widget=AREA,
        help_text='JSON, an object of names and values to claim and to search by: {"title": "abc"}.',
    )
    priority = forms.IntegerField(
        required=False, help_text="Smaller is sooner. Empty: now as Unix time in milliseconds."
    )
    invisible_for = forms.FloatField(required=False, help_text="Seconds until it may be claimed.")
    max_attempts = forms.IntegerField(required=False, help_text="After so many claims without success it is errored.")
    timeout = forms.FloatField(required=False, help_text="Seconds that one attempt may take.")
    lease = forms.FloatField(required=False, help_text="Seconds that a claim holds without a heartbeat.")
    retention = forms.FloatField(required=False, help_text="Seconds for which it is kept once it has ended.")
    worker_ids = forms.CharField(
        required=False,
        label="Workers",
        widget=forms.Textarea(attrs={"rows": 2, "cols": 40}),
        help_text="Names, one in a line: only these may claim it. Empty: anyone.",
    )
    worker_count = forms.IntegerField(required=False, help_text="So many workers run it, each once. Empty: one.")

    # The publication's result, once the form is valid.
    published: Any = None

    def clean_worker_ids(self) -> list[str]:
        """Return the names, one per line."""
        return [name for line in self.cleaned_data["worker_ids"].splitlines() if (name := line.strip())]

    def clean(self) -> Any:
        """Publish the task if the form has no errors so far: only the queue can tell whether it refuses the task."""
        values: Any = super().clean()
        if self.errors:
            return values
        options = {name: values[name] for name in OPTIONS if values[name] not in (None, "")}
        try:
            self.published = values["queue"].publish(
                values["action"], values["data"], update=values["update"], **options
            )
        except PublishRefused as refused:
            raise forms.ValidationError(" ".join(str(refused).split())) from refused
        return values

    @property
    def told(self) -> str:
        """Return a sentence on the publication's result."""
        task, outcome = self.published.task, str(self.published.outcome)
        wrote = "; what is written here was put into it" if outcome == "matched" and self.cleaned_data["update"] else ""
        return f"Task {task.pk} ({task.action}) {TOLD[outcome]}{wrote} ({outcome})."
