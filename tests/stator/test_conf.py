"""Every setting has a default that works and refuses what cannot; a wrong key is told the right one. Fault F42."""

from dataclasses import fields

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from stator.conf import Settings, load_settings, read_settings

SECRET = "not-long-enough"

BAD_VALUES = [
    ({"LEASE": 0}, "LEASE=0 must be at least 0.5"),
    ({"LEASE": "60"}, "LEASE='60' must be a number"),
    ({"LEASE": float("nan")}, "LEASE=nan must be a number"),
    ({"LEASE": 10**12}, "LEASE=1000000000000 must be at most 3153600000"),
    ({"REAP_INTERVAL": 0}, "REAP_INTERVAL=0 must be at least 0.05"),
    ({"POLL_INTERVAL": -1}, "POLL_INTERVAL=-1 must be at least 0.01"),
    ({"SCHEDULE_INTERVAL": 0}, "SCHEDULE_INTERVAL=0 must be at least 0.05"),
    ({"SHUTDOWN_TIMEOUT": -0.1}, "SHUTDOWN_TIMEOUT=-0.1 must be at least 0.0"),
    ({"MAX_RUNTIME": 0}, "MAX_RUNTIME=0 must be at least 0.05"),
    ({"CONCURRENCY": 0}, "CONCURRENCY=0 must be at least 1"),
    ({"CONCURRENCY": 1.5}, "CONCURRENCY=1.5 must be a whole number"),
    ({"CONCURRENCY_PER_MODEL": -1}, "CONCURRENCY_PER_MODEL=-1 must be at least 0"),
    ({"THREADS": 0}, "THREADS=0 must be at least 1"),
    ({"BATCH_SIZE": "many"}, "BATCH_SIZE='many' must be a whole number"),
    ({"MAX_CRASHES": 0}, "MAX_CRASHES=0 must be at least 1"),
    ({"CRASHED_AT_ONCE": -1}, "CRASHED_AT_ONCE=-1 must be at least 0"),
    ({"WATCHDOG": 0}, "WATCHDOG=0 must be at least 0.5"),
    ({"ERROR_RETENTION": -1}, "ERROR_RETENTION=-1 must be at least 0.0"),
    ({"HISTORY_RETENTION": -1}, "HISTORY_RETENTION=-1 must be at least 0.0"),
    ({"STATS_RETENTION": "year"}, "STATS_RETENTION='year' must be a number"),
    ({"PAYLOAD_LIMIT": 1}, "PAYLOAD_LIMIT=1 must be at least 2"),
    ({"NOTIFY": "yes"}, "NOTIFY='yes' must be True or False"),
    ({"LISTEN_DSN": None}, "LISTEN_DSN must be a string, not NoneType"),
    ({"TOKEN": SECRET}, "TOKEN must be a string of at least 32 bytes"),
    ({"TOKEN": ["x" * 40, ""]}, "TOKEN must be a string of at least 32 bytes"),
    ({"ALLOW_QUERY_TOKEN": None}, "ALLOW_QUERY_TOKEN=None must be True or False"),
    ({"ADMIN": "no"}, "ADMIN='no' must be True or False"),
    ({"SCHEMAS": "acme"}, "SCHEMAS='acme' must be a list of names of schemas, or"),  # stator.extensions.schemas
    ({"EXTENSIONS": "budget"}, "EXTENSIONS='budget' must be a list of dotted paths of modules"),
    ({"EXTENSIONS": [1]}, "EXTENSIONS=[1] must be a list of dotted paths of modules"),
    ({"EXTENSIONS": ["bugdet"]}, "EXTENSIONS has 'bugdet', which cannot be imported: No module named 'bugdet'"),
    ({"EXTENSIONS": ["tests.sizes"]}, "EXTENSIONS has 'tests.sizes', a module without EXTENSION; see 'Write an ext"),
    ({"EXTENSIONS": ["stator.extensions.undo"] * 2}, "EXTENSIONS has 'stator.extensions.undo' twice; remove one"),
    ({"TRACING": 1}, "TRACING=1 must be True or False"),  # stator.extensions.tracing
    ({"RUNSERVER_WORKER": "yes"}, "RUNSERVER_WORKER='yes' must be"),  # stator.extensions.processes
    ({"HTTP_RUN_FOR": -1}, "HTTP_RUN_FOR=-1 must be at least 0.1"),
    ({"UTC": "yes"}, "UTC='yes' must be True or False"),
]

CONFLICTS = [
    ({"LEASE": 1, "POLL_INTERVAL": 1}, "LEASE=1 is too close to POLL_INTERVAL=1; raise LEASE"),
    ({"LEASE": 5, "REAP_INTERVAL": 5}, "LEASE=5 must be longer than REAP_INTERVAL=5; raise LEASE or lower"),
    ({"LEASE": 20, "SHUTDOWN_TIMEOUT": 25}, "SHUTDOWN_TIMEOUT=25 must not be longer than LEASE=20; lower it or raise"),
]


def test_every_setting_has_a_test_of_a_wrong_value():
    assert {name for values, _ in BAD_VALUES for name in values} == {option.name for option in fields(Settings)}


@pytest.mark.parametrize(("values", "message"), BAD_VALUES + CONFLICTS, ids=str)
def test_wrong_value_is_one_line_that_names_it_and_what_is_wanted(values, message):
    with override_settings(STATOR=values), pytest.raises(ImproperlyConfigured) as caught:
        load_settings()
    text = str(caught.value)
    assert text.startswith(f"STATOR setting: {message}")
    assert "\n" not in text
    assert SECRET not in text


@pytest.mark.parametrize("lease", [0.5, 2, 9.5, 24, 3600])
def test_defaults_follow_a_lease_that_is_given_alone(lease):
    with override_settings(STATOR={"LEASE": lease}):
        settings = load_settings()
    assert lease == settings.LEASE
    assert min(25, lease) == settings.SHUTDOWN_TIMEOUT
    assert min(5, lease / 2) == settings.REAP_INTERVAL
    assert min(1, lease / 4) == settings.POLL_INTERVAL


def test_unknown_key_is_refused_with_the_nearest_name_or_with_all():
    nearest = {"LEESE": "LEASE", "lease": "LEASE", "CONCURENCY": "CONCURRENCY", "REAP_INTERVALL": "REAP_INTERVAL"}
    for key, name in nearest.items():
        with override_settings(STATOR={key: 1}), pytest.raises(ImproperlyConfigured) as caught:
            load_settings()
        assert str(caught.value) == f"STATOR setting: {key!r} is not a setting; did you mean {name!r}?"
    for key in ("ZZZ", "", 7, None, "x;drop table"):
        with override_settings(STATOR={key: 1}):
            _, problems = read_settings()
        assert problems[0].startswith(f"{key!r} is not a setting; known settings are A")
    # All problems are told at once to whoever asks.
    with override_settings(STATOR={"LEASE": -1, "THREADS": 0, "LEESE": 1}):
        assert len(read_settings()[1]) == 3


def test_no_settings_are_required_but_they_are_a_dictionary():
    for given in (None, {}):
        with override_settings(STATOR=given):
            assert load_settings() == Settings()
    for given in ("LEASE=60", ["LEASE"], 60, {"LEASE"}):
        with (
            override_settings(STATOR=given),
            pytest.raises(ImproperlyConfigured, match="STATOR must be a dictionary, not"),
        ):
            load_settings()


def test_settings_by_takahes_names_are_read_beside_the_dictionary():
    token = "t" * 40
    with override_settings(
        STATOR={"CONCURRENCY_PER_MODEL": 5}, STATOR_TOKEN=token, STATOR_CONCURRENCY=7, STATOR_CONCURRENCY_PER_MODEL=9
    ):
        settings = load_settings()
    assert settings.TOKEN == token
    assert (settings.CONCURRENCY, settings.CONCURRENCY_PER_MODEL) == (7, 5)
