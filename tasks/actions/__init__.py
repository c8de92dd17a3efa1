"""Actions: the Python functions that tasks run. ``registry`` finds them, ``attempts`` runs them for a claimed task."""
