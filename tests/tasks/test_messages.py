"""Which messages may be published; any other is refused in one line that names the fault. Needs no database."""

import pytest

from tasks.conf import TaskSettings
from tasks.exceptions import PublishRefused
from tasks.messages import exclusive_value, is_same_json, message_of

SETTINGS = TaskSettings(PAYLOAD_LIMIT=1000, PAYLOAD_DEPTH=5, METADATA_LIMIT=100)

circular: list = []
circular.append(circular)


def deep(levels):
    return [] if levels == 1 else [deep(levels - 1)]


def refusal(**given):
    with pytest.raises(PublishRefused) as refused:
        message_of({"action": "a", **given}, SETTINGS, 3600)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 500
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("action", ""), ("action", None), ("action", 7), ("action", "a" * 201), ("action", "a\nb"), ("action", "a\x00"),
        ("key", ""), ("key", "k" * 201), ("key", 7), ("key", "a\r\nb"),
        ("priority", "1"), ("priority", 1.5), ("priority", True), ("priority", 2**63), ("priority", 10**400),
        ("lease", 0), ("lease", 3601), ("lease", "9"), ("lease", float("nan")), ("timeout", 0),
        ("timeout", float("inf")),
        ("invisible_for", -1), ("retention", -1), ("max_attempts", 0), ("max_attempts", 1.0), ("worker_count", 0),
        ("worker_count", 1001), ("worker_ids", "bot-1"), ("worker_ids", [""]), ("worker_ids", ["a\nb"]),
        ("worker_ids", ["a"] * 1001), ("worker_ids", [7]),
        ("metadata", []), ("metadata", {"a": None}), ("metadata", {"a": [1]}), ("metadata", {"": 1}),
        ("metadata", {"7": 1}), ("metadata", {'a"': 1}), ("metadata", {"a": float("nan")}),
        ("metadata", {"a": "x" * 100}),
        ("metadata", {"a": "\x00"}), ("data", "\x00"), ("data", {"a": ["\x00"]}), ("data", {"\x00": 1}),
        ("data", "\ud800"), ("data", float("inf")), ("data", {1, 2}), ("data", object()), ("data", "x" * 1000),
        ("data", deep(7)), ("data", circular),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(name, value):
    assert name in refusal(**{name: value})


def test_what_is_at_the_bounds_is_taken():
    message = message_of(
        {"action": "a" * 200, "data": deep(5), "priority": -(2**63), "worker_ids": ["Bot 1/x:y@z"], "lease": 3600},
        SETTINGS,
        3600,
    )
    assert (message.priority, message.worker_ids, message.lease) == (-(2**63), ["Bot 1/x:y@z"], 3600)


@pytest.mark.parametrize("text", ["\\u0000", "a\\\\u0000", "C:\\u0000\\u0000", "\\\\" * 1000 + "u0000"])
def test_text_that_only_spells_a_nul_is_no_nul(text):
    wide = TaskSettings(METADATA_LIMIT=10_000)
    message = message_of({"action": "a", "data": {text: [{"b": text}]}, "metadata": {"a": text}}, wide, 3600)
    assert message.data == {text: [{"b": text}]}


@pytest.mark.parametrize("data", ["\\\x00", "\\u0000\x00", {"\\\x00": 1}, [{"a": {"\x00": 1}}]])
def test_nul_after_a_backslash_is_a_nul(data):
    assert "NUL" in refusal(data=data)


def test_unknown_option_is_refused_with_the_nearest():
    assert refusal(prioritty=1) == "a task has no option 'prioritty'; did you mean 'priority'?"
    assert "options are action, data" in refusal(zzz=1)


@pytest.mark.parametrize(
    ("name", "meant"),
    [("delay", "use invisible_for, in seconds"), ("rate_limit", "options are action")],
)
def test_option_of_another_queue_is_refused_with_ours(name, meant):
    assert refusal(**{name: 1}).startswith(f"a task has no option {name!r}; {meant}")


def test_message_needs_an_action():
    with pytest.raises(PublishRefused, match="has no action"):
        message_of({"data": 1}, SETTINGS, 3600)


@pytest.mark.parametrize(("value", "text"), [("abc", "abc"), (7, "7"), (7.0, "7"), (1.5, "1.5"), (True, "true")])
def test_exclusive_value_is_text(value, text):
    assert exclusive_value("title", {"title": value}) == text


@pytest.mark.parametrize("value", ["", "x" * 201])
def test_exclusive_value_is_no_longer_than_its_column(value):
    with pytest.raises(PublishRefused, match="1 to 200 characters"):
        exclusive_value("title", {"title": value})


@pytest.mark.needs("shared")
def test_as_many_workers_as_are_to_run_it_must_be_named_each_once():
    assert "names fewer" in refusal(worker_ids=["a", "a"], worker_count=2)
    message_of({"action": "a", "worker_ids": ["a", "b"], "worker_count": 2}, SETTINGS, 3600)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1e23, 10**23), ({"a": [1.0]}, {"a": [1]}), (-0.0, 0), (0.1, 0.1), ((1, 2), [1, 2]), (None, None)],
)
def test_numbers_are_compared_as_json_has_them(one, other):
    assert is_same_json(one, other)


@pytest.mark.parametrize(("one", "other"), [(1e23, 10**23 + 1), ("1", 1), (None, 0), ({"a": 1}, {"b": 1})])
def test_other_values_differ(one, other):
    assert not is_same_json(one, other)
