"""An index of Python source code that a reconciliation loop keeps equal to the files on disk."""
