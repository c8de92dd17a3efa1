"""What can be wrong with schedules."""
