"""A worker's own small HTTP server: /metrics for Prometheus, /health and /ready for probes."""

import logging
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from stator.commands.answer import BadInput
from stator.extensions.metrics.measures import Measures, WorkerMetrics
from stator.worker.parts import WorkerPart

if TYPE_CHECKING:
    from stator.worker.worker import Worker

logger = logging.getLogger("stator.worker")

# Seconds that a client may be silent.
PATIENCE = 10.0


def parts(worker: "Worker") -> Iterator[WorkerPart]:
    """Yield the endpoint of a worker whose command asks for one."""
    port = worker.command.get("metrics_port")
    if not isinstance(port, int):
        return
    address, own = str(worker.command["metrics_address"]), port + worker.number
    try:
        endpoint = Endpoint(worker, address, own)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise BadInput(f"--metrics-port: {address}:{own} cannot be used: {why}") from error
    yield WorkerPart(start=endpoint.start, stop=endpoint.stop, beat=endpoint.tick, monitor=endpoint.measures)


class Endpoint:
    """A server that listens when it is made, or raises ``OSError``; it answers once it is started.

    Somebody calls :meth:`tick` whenever the loop of the worker turns, also if nothing else watches it.
    """

    def __init__(self, worker: "Worker", address: str, port: int) -> None:
        self.worker = worker
        self.measures = Measures()
        self._ticked = 0.0
        self._server = (_Server6 if ":" in address else _Server)((address, port), _Handler)
        self._server.endpoint = self
        self._thread = threading.Thread(target=self._server.serve_forever, name="stator-endpoint", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on; the system chooses one if 0 was asked for."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Answer requests."""
        self.tick()
        self._thread.start()

    def stop(self) -> None:
        """Stop answering."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()

    def tick(self) -> None:
        """Note that the loop turns."""
        self._ticked = time.monotonic()

    @property
    def sees_life(self) -> bool:
        """Whether the loop has turned lately."""
        return time.monotonic() - self._ticked < self.worker.settings.WATCHDOG / 2


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    endpoint: Endpoint

    def server_bind(self) -> None:
        """Bind without looking up this host's name, which may take long and is not used."""
        TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log at debug level only: a client that hung up is no news, and standard error is for events."""
        logger.debug("stator.endpoint_failed", extra={"error": repr(sys.exc_info()[1])})


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE
    server_version = "stator"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one of the three paths."""
        endpoint = self.server.endpoint
        worker = endpoint.worker
        match self.path.partition("?")[0]:
            case "/metrics":
                figures = WorkerMetrics(worker, endpoint.measures)
                self._answer(200, generate_latest(figures), CONTENT_TYPE_PLAIN_0_0_4)
            case "/health":
                self._tell("alive" if endpoint.sees_life and not worker.health.trouble() else "")
            case "/ready":
                well = "ready" if worker.is_ready and endpoint.sees_life else ""
                self._tell(well, [f"left out: {operations.lacking}" for operations in worker.tables.left_out])
            case _:
                self._answer(404, b"not found; use /metrics, /health or /ready\n")

    def _tell(self, well: str, further: Sequence[str] = ()) -> None:
        self._answer(200 if well else 503, "".join(f"{line}\n" for line in (well or "not", *further)).encode())

    def _answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class has it
        """Log nothing: a line for each probe would drown the events."""
