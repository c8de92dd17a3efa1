"""What workers do for all tasks after moves and at each scheduling pass: end shared tasks, delete, count."""
