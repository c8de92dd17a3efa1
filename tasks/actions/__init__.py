"""Actions: Python functions that tasks name. ``registry`` finds them, ``attempts`` runs them for a claimed task."""
