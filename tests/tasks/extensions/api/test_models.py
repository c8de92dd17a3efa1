"""Consumers: what a token opens, and that nothing of it is kept."""

import hashlib
import hmac
from datetime import timedelta

import pytest
from django.utils import timezone

from tasks.extensions.api import models as consumers
from tasks.extensions.api.models import Consumer
from tests.tasks.serving import opened

pytestmark = pytest.mark.django_db


def consumer(**values):
    made = Consumer(name="bot", **values)
    token = made.issue()
    made.save()
    return made, token


def test_token_is_found_and_nothing_of_it_is_stored():
    made, token = consumer()
    assert opened(token) == made
    secret = token.rpartition(f"{made.prefix}_")[2]
    assert len(secret) >= 43
    row = Consumer.objects.values().get()
    assert not [name for name, value in row.items() if secret in str(value)]
    assert row["digest"] == hashlib.sha256(token.encode()).hexdigest()


SPOILED = [
    lambda token: token[:-1] + ("A" if token[-1] != "A" else "B"),
    lambda token: token[:4] + ("0" if token[4] != "0" else "1") + token[5:],
    lambda token: token + "A",
    lambda token: token[:-1],
    lambda token: f" {token}",
    lambda token: f"{token}\n",
    lambda token: token.replace("tk_", "TK_"),
    lambda token: token.partition("_")[2],
    lambda token: "",
    lambda token: "tk_\u0660\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668\u0669\u0660\u0661_" + "A" * 43,
    lambda token: "tk_" + "0" * 12 + "_" + "\udcff" * 43,
    lambda token: "' OR 1=1 --",
]


def test_anything_else_opens_nothing():
    _, token = consumer()
    assert [number for number, spoil in enumerate(SPOILED) if opened(spoil(token)) is not None] == []


def test_disabled_and_expired_ones_open_nothing():
    made, token = consumer(expires=timezone.now() + timedelta(hours=1))
    assert opened(token) == made
    Consumer.objects.update(expires=timezone.now() - timedelta(seconds=1))
    assert opened(token) is None
    Consumer.objects.update(expires=None, enabled=False)
    assert opened(token) is None
    Consumer.objects.update(enabled=True)
    assert opened(token) == made


def test_unknown_tokens_are_compared_as_known_ones_are(monkeypatch):
    compared = []
    monkeypatch.setattr(
        consumers.secrets, "compare_digest", lambda one, other: compared.append(one) or hmac.compare_digest(one, other)
    )
    made, token = consumer()
    for one in (token, token[:-1] + "-", token.replace(made.prefix, "0" * 12), "nonsense"):
        opened(one)
    assert len(compared) == 4
