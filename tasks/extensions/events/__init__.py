"""Events that consumers send to managed objects."""
