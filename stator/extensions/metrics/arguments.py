"""``runstator --metrics-port``: the endpoint of each worker process."""

from argparse import ArgumentParser

from stator.commands.answer import BadInput, Options


def add_arguments(parser: ArgumentParser) -> None:
    """Add where a process listens."""
    port_help = "Serve /metrics, /health and /ready on this port; further processes use the ports after it."
    parser.add_argument("--metrics-port", type=int, metavar="PORT", help=port_help)
    address_help = "Address for --metrics-port (default: 127.0.0.1, which only this host reaches)."
    parser.add_argument("--metrics-address", default="127.0.0.1", metavar="IP", help=address_help)


def take(options: Options) -> None:
    """Refuse ports that there are not, and no address."""
    port, last = options["metrics_port"], 65536 - (options.get("processes") or 1)
    if port is not None and not 1 <= port <= last:
        raise BadInput(f"--metrics-port {port} must be from 1 to {last}, so that each process has one")
    if not options["metrics_address"].strip():
        raise BadInput("--metrics-address is empty; name an address of this host, or leave the option out")
