"""The subcommands of ``manage.py tasks``."""
