"""An index of Python source code, kept true to the disk by a reconciliation loop."""
