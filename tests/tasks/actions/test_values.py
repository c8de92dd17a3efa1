"""Values that actions return, as they are stored."""

import pytest

from tasks.actions.values import storable
from tasks.conf import load_settings
from tasks.failures import NotStorable


def stored(value):
    return storable(value, "the result", load_settings())


@pytest.mark.parametrize(
    ("value", "expected"), [(None, None), ((1, 2), [1, 2]), ({1: "a"}, {"1": "a"}), ("text", "text"), (0, 0)]
)
def test_value_is_as_json_gives_it_back(value, expected):
    assert stored(value) == expected


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), "nul\0", b"bytes"])
def test_value_that_no_json_has_is_refused_in_one_line(value):
    with pytest.raises(NotStorable) as refused:
        stored(value)
    assert "\n" not in str(refused.value)
    assert "the result" in str(refused.value)


def test_value_beyond_the_limit_is_refused(settings):
    settings.STATOR_TASKS = {"PAYLOAD_LIMIT": 1000}
    with pytest.raises(NotStorable):
        stored("x" * 1001)
