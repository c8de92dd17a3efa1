"""Loops of named workers, in the program's own process: ``queue.consume()`` and ``queue.aconsume()``."""
