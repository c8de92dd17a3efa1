"""Tests on a server with the extension Citus; they run where ``CITUS_URL`` is the address of a coordinator."""
