"""The suite; bin/test runs it on every database."""
