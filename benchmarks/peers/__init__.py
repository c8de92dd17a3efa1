"""Other queues, each run by a script in an environment of its own, with the same job on the same server."""
