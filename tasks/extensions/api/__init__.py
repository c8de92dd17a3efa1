"""The HTTP API: what programs get with a token. The endpoints are in ``tasks/api``."""
