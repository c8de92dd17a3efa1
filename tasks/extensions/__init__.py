"""Extensions of the queue, and the queue's share of the framework's: each is a folder that can be deleted."""
