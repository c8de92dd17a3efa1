"""The progress of tasks that named workers hold."""
