"""A TCP proxy between workers and their database, that loses replies and does what bad networks do."""

import re
import socket
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Self

CHUNK = 65536

# The last message of every reply of PostgreSQL, and its last byte when no transaction is open: all is committed.
READY, IDLE = b"Z\x00\x00\x00\x05", b"I"

# The first bytes of the packets that end the replies of MySQL, and the flag of a transaction that is open.
DONE, END, ERROR, IN_TRANSACTION = 0x00, 0xFE, 0xFF, 1


def committed_on_postgresql(reply: bytes) -> bool | None:
    """Return whether a reply says that no transaction is open; None if it is not complete."""
    return reply.endswith(IDLE) if reply[-6:-1] == READY else None


def committed_on_mysql(reply: bytes) -> bool | None:
    """Return the same for MySQL and MariaDB: packets, each with its length in three bytes and a number before it."""
    packet, left = b"", reply
    while left:
        length = 4 + int.from_bytes(left[:3], "little")
        packet, left = left[:length], left[length:]
        if len(packet) < length:
            return None
    kind, is_first = packet[4], packet[3] == 1
    if kind == ERROR:
        return False
    if kind == END and len(packet) < 16:
        return not packet[7] & IN_TRANSACTION
    if kind == DONE and is_first:
        return not packet[_after_number(packet, _after_number(packet, 5))] & IN_TRANSACTION
    return None


def _after_number(packet: bytes, at: int) -> int:
    """Return the position after a number whose first byte may say how many more it has."""
    return at + 1 + {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(packet[at], 0)


class Link:
    """One connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        # By the pattern that one of its statements matched.
        self.doomed: re.Pattern[bytes] | None = None
        self.held = b""

    def cut(self) -> None:
        """End it for both; the threads that pass its bytes on are woken by this, and close it."""
        for end in (self.client, self.server):
            _end(end, socket.SHUT_RDWR)


class Proxy:
    """Passes bytes on between clients and ``upstream``; ``lost`` counts the replies that never arrived.

    ``delay``: seconds by which every piece comes late. ``committed``: reads the replies of the kind of server.
    """

    def __init__(
        self, host: str, port: int, committed: Callable[[bytes], bool | None] = committed_on_postgresql
    ) -> None:
        self.delay = 0.0
        self._committed = committed
        self.lost = 0
        self._upstream = host, port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._passing = Event()
        self._passing.set()
        self._links: list[Link] = []
        self._pumps: list[Thread] = []
        self._lock = Lock()
        self._pattern = re.compile(b"")
        self._times = 0

    def __enter__(self) -> Self:
        Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._passing.set()
        self.cut()
        for thread in self._pumps:
            thread.join()

    @property
    def port(self) -> int:
        """Where clients connect."""
        return int(self._listener.getsockname()[1])

    def lead_to(self, host: str, port: int) -> None:
        """Connect those that come from now on to another server."""
        self._upstream = host, port

    def lose_replies_to(self, pattern: bytes, times: int) -> None:
        """Let each of the next transactions with a matching statement be committed, and cut its client off untold."""
        with self._lock:
            self._pattern, self._times = re.compile(pattern, re.DOTALL), times

    def open_hole(self) -> None:
        """Pass nothing on, and say nothing about it."""
        self._passing.clear()

    def close_hole(self) -> None:
        """Pass on again what was held up."""
        self._passing.set()

    def cut(self) -> None:
        """Cut every connection."""
        self._each(Link.cut)

    def half_close(self) -> None:
        """Tell every client that the server has said its last word, and not the server."""
        self._each(lambda link: _end(link.client, socket.SHUT_WR))

    def _each(self, act: Callable[[Link], None]) -> None:
        with self._lock:
            for link in self._links:
                act(link)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # the proxy was left
            try:
                link = Link(client, socket.create_connection(self._upstream))
            except OSError:
                client.close()
                continue
            thread = Thread(target=self._serve, args=[link], daemon=True)
            self._pumps.append(thread)
            thread.start()

    def _serve(self, link: Link) -> None:
        with self._lock:
            self._links.append(link)
        asking = Thread(target=self._pump, args=[link, link.client, link.server, self._ask], daemon=True)
        asking.start()
        self._pump(link, link.server, link.client, self._answer)
        asking.join()
        with self._lock:
            self._links.remove(link)
            # It ended before its reply came; another shall be lost instead.
            self._times += link.doomed is self._pattern
            link.client.close()
            link.server.close()

    def _pump(self, link: Link, source: socket.socket, target: socket.socket, look: Callable[..., bytes]) -> None:
        try:
            while data := source.recv(CHUNK):
                if self.delay:
                    Event().wait(self.delay)
                self._passing.wait()
                target.sendall(look(link, data))
        except OSError:
            link.cut()
        _end(target, socket.SHUT_WR)

    def _ask(self, link: Link, data: bytes) -> bytes:
        with self._lock:
            if self._times and not link.doomed and self._pattern.search(data):
                self._times -= 1
                link.doomed = self._pattern
        return data

    def _answer(self, link: Link, data: bytes) -> bytes:
        if not link.doomed:
            return data
        # Until the end of the reply: it may be cut in pieces, the first of which come before the commit.
        link.held += data
        committed = self._committed(link.held)
        if committed is None:
            return b""
        if committed:
            self.lost += 1
            link.doomed = None
            link.cut()
            return b""
        data, link.held = link.held, b""
        return data


def _end(end: socket.socket, how: int) -> None:
    try:
        end.shutdown(how)
    except OSError:
        return  # it has ended already
