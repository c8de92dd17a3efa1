"""Durable steps of tasks that named workers hold."""
