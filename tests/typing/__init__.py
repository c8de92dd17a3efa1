"""Type checkers in a project that uses the library."""
