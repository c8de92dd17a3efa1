"""What is wrong with queues, tasks and schedules: kinds of problems for the framework's table. ``kinds`` lists them."""
