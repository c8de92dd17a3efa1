"""The worker: when it claims, executes, records, and does its duties."""
