"""Consumers in the admin: a token is shown once, and no form sets it."""

import pytest

from tasks.extensions.api.models import Consumer
from tests.tasks.serving import opened

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("queue")]


class TestAdmin:
    URL = "/admin/tasks/consumer/"

    def add(self, admin_client, **values):
        given = {"name": "bot-1", "may_claim": "on", "enabled": "on", **values}
        return admin_client.post(f"{self.URL}add/", given)

    def test_adding_shows_the_token_once(self, admin_client, queue):
        answer = self.add(admin_client, queues=[queue.pk])
        assert answer.status_code == 200
        assert "no-store" in answer["Cache-Control"]
        [token] = answer.content.decode().split('<code id="token">')[1:]
        token = token.partition("<")[0]
        consumer = opened(token)
        assert consumer.verbs == ["claim"]
        assert list(consumer.reach()) == [queue]
        shown = "".join(admin_client.get(self.URL + path).content.decode() for path in ("", f"{consumer.pk}/change/"))
        # Not what follows the last one: a secret may have an underscore of its own.
        secret = token.split("_", 2)[2]
        assert secret not in shown
        assert consumer.digest not in shown
        assert f"tk_{consumer.prefix}_..." in shown
        assert secret not in str(admin_client.cookies)

    def test_token_and_counts_cannot_be_posted(self, admin_client):
        self.add(admin_client, prefix="0" * 12, digest="x", used_count="7")
        consumer = Consumer.objects.get()
        before = consumer.prefix, consumer.digest
        assert before != ("0" * 12, "x")
        assert consumer.used_count == 0
        Consumer.objects.update(used_count=5)
        changed = {"name": "bot-2", "enabled": "on", "prefix": "0" * 12, "digest": "x", "used_count": "7"}
        answer = admin_client.post(f"{self.URL}{consumer.pk}/change/", changed)
        assert answer.status_code == 302
        consumer.refresh_from_db()
        assert (consumer.name, consumer.prefix, consumer.digest, consumer.used_count) == ("bot-2", *before, 5)
        assert consumer.verbs == []
