"""JSON that people paste: read, or refused in words; never an error of the page."""

import pytest
from django import forms

from stator.admin.fields import DEEPEST, JSONField


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize(
    "text", ["", "7", "1.5", '"a"', '["\\u00e9\\ud83d\\ude00"]', '{"a": [null, true]}', nested(DEEPEST)]
)
def test_json_is_read_as_django_reads_it(text: str) -> None:
    assert JSONField(required=False).clean(text) == forms.JSONField(required=False).clean(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "Enter a valid JSON"),
        ("[" * 99_999, "Enter a valid JSON"),
        (nested(DEEPEST + 1), "nested deeper"),
        ("[1e999]", "NaN or Infinity"),
        ('"\\ud800"', "surrogate"),
        ('["\\u0000"]', "NUL"),
    ],
    ids=range(6),
)
def test_text_that_cannot_be_stored_is_an_error_and_is_shown_as_it_was_typed(text: str, words: str) -> None:
    class Form(forms.Form):
        data = JSONField()

    form = Form({"data": text})
    assert words in str(form.errors["data"])
    assert form["data"].value() == text
