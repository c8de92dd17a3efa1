"""The admin's form for publishing a task; if the queue refuses the task, its message becomes a form error."""

from hashlib import sha256
from typing import Any
from uuid import uuid4

from django import forms

from stator.admin.fields import JSONField
from tasks.exceptions import PublishRefused
from tasks.messages import NUMBERS, OPTIONS, PLAIN, REQUIRED, TEXTS
from tasks.models import Queue
from tasks.queue.publishing import Published

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


def json_field(name: str, further: str) -> Any:
    """Return the field of an option of tasks that is a value in JSON."""
    area = forms.Textarea(attrs={"rows": 4, "cols": 80, "spellcheck": "false"})
    return JSONField(required=False, widget=area, help_text=f"{_says(name)} {further}")


def plain_field(name: str, text: str = "") -> forms.Field:
    """Return the field of an option of tasks that is a text or a number, with its documentation or this text."""
    text = text or _says(name)
    if name in TEXTS:
        kept = {"max_length": TEXTS[name], "empty_value": None, "required": name in REQUIRED}
        return forms.CharField(widget=forms.TextInput(attrs={"size": 60}), help_text=text, **kept)
    _, _, whole = NUMBERS[name]
    unit = "" if whole or text.startswith("Seconds") else "Seconds. "
    return (forms.IntegerField if whole else forms.FloatField)(required=False, help_text=f"{unit}{text}")


def _says(name: str) -> str:
    return str(OPTIONS[name].metadata["says"])


def clean_names(form: forms.Form) -> list[str]:
    """Return the names in the field of a form."""
    return [name for line in form.cleaned_data["worker_ids"].splitlines() if (name := line.strip())]


class PublishForm(forms.Form):
    """One task to publish. Empty fields take the queue's value, or else the setting's."""

    queue = forms.ModelChoiceField(Queue.objects.order_by("name"))
    action = plain_field("action")
    data = json_field("data", "Empty: null.")
    key = plain_field("key")
    update = forms.BooleanField(
        required=False,
        label="Update",
        help_text="If a task with this key already waits, write these values into it. What is empty here stays.",
    )
    metadata = json_field("metadata", 'A JSON object, such as {"title": "abc"}.')
    worker_ids = names_field("Names of the only workers that may claim it, one per line")
    # The value differs each time that the form is shown, and stays if the form is sent twice.
    once = forms.CharField(required=False, max_length=100, widget=forms.HiddenInput, initial=lambda: uuid4().hex)

    # The publication's result, once the form is valid.
    published: Published

    clean_worker_ids = clean_names

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields |= {name: plain_field(name) for name in PLAIN if name not in self.fields}
        self.order_fields([name for name in self.fields if not name.startswith("worker_")])

    def clean(self) -> dict[str, object]:
        """Publish the task if the form has no errors so far: only the queue can tell whether it refuses the task."""
        super().clean()
        values = self.cleaned_data
        if self.errors:
            return values
        given = [name for name in self.fields if name in OPTIONS and self[name].value() not in (None, "")]
        options = {name: values[name] for name in given if name != "action"}
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
    def sentence(self) -> str:
        """Return a sentence on the publication's result."""
        task, outcome = self.published.task, str(self.published.outcome)
        if outcome != "inserted" and not self.cleaned_data["key"]:
            return f"Task {task.pk} ({task.action}) was published already: this form was sent twice."
        wrote = "; these values were written into it" if outcome == "matched" and self.cleaned_data["update"] else ""
        return f"Task {task.pk} ({task.action}) {OUTCOMES[outcome]}{wrote} ({outcome})."
