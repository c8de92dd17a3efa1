"""A server with a fixed number of threads, as gunicorn and others have: ``python -m tests.tasks.pooled THREADS``."""

import sys
from concurrent.futures import ThreadPoolExecutor

from django.core.servers.basehttp import WSGIRequestHandler, WSGIServer, get_internal_wsgi_application


class PooledServer(WSGIServer):
    """Hands each connection to a thread of its pool; those beyond wait for one."""

    request_queue_size = 100

    def __init__(self, threads):
        self.pool = ThreadPoolExecutor(threads)
        super().__init__(("127.0.0.1", 0), WSGIRequestHandler, ipv6=False)

    def process_request(self, request, client_address):
        self.pool.submit(self._answer, request, client_address)

    def _answer(self, request, client_address):
        try:
            self.finish_request(request, client_address)
        finally:
            self.shutdown_request(request)


if __name__ == "__main__":
    server = PooledServer(int(sys.argv[1]))
    server.set_app(get_internal_wsgi_application())
    print(f"Starting development server at http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
