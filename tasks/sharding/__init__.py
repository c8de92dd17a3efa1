"""Queues over several databases: which one gets a task, how copies of queues are kept equal, and numbers of tasks."""
