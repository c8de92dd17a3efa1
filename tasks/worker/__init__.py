"""How a worker process runs tasks."""
