"""How many claims may wait: by the setting, or by what the server shows of its threads."""

import socket
import socketserver
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from django.test import AsyncRequestFactory

from tasks.api.server import most_waiting
from tests.sizes import PATIENCE


def request(*, threads=True):
    return SimpleNamespace(META={"wsgi.multithread": threads})


@pytest.mark.parametrize(("threads", "waiting"), [(1, 0), (2, 1), (3, 1), (8, 4)])
def test_half_of_the_threads_of_a_pool(threads, waiting):
    with ThreadPoolExecutor(threads) as pool:
        assert pool.submit(most_waiting, request()).result() == waiting


def test_many_where_each_request_has_a_thread(monkeypatch):
    found = []
    ended = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            found.append(most_waiting(request()))
            ended.set()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        with socket.create_connection(server.server_address):
            assert ended.wait(PATIENCE)
        server.shutdown()
        serving.join()
    assert found == [20]


def test_very_many_under_asgi_also_from_a_thread():
    asked = AsyncRequestFactory().post("/api/queues/encode/claims")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(most_waiting, asked).result() == most_waiting(asked) == 1000


def test_one_where_the_server_does_not_show_its_threads():
    found = []
    thread = threading.Thread(target=lambda: found.append(most_waiting(request())))
    thread.start()
    thread.join()
    assert [*found, most_waiting(request())] == [1, 1]


def test_none_where_requests_are_answered_one_by_one_many_where_nothing_is_known_or_what_the_setting_says(settings):
    asked = [request(threads=False), SimpleNamespace(META={}), request()]
    assert [most_waiting(each) for each in asked] == [0, 20, 1]
    settings.STATOR_TASKS = {"API_WAITING": 7}
    assert [most_waiting(each) for each in asked] == [7, 7, 7]
