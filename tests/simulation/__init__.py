"""The lock protocol under thousands of seeded schedules.

A worker is a generator that yields one statement at a time (``workers``). The scheduler (``schedule``) reads bytes:
each says who goes next, or which fault happens. So a seed is a reproduction, and Hypothesis shrinks a schedule that
breaks a promise to the few steps that matter. ``store`` has the statements in SQL, quick enough for thousands of
schedules; ``product`` sends the statements of ``stator.db`` instead, and a test holds the two against each other row
by row. The checker of ``tests.faults`` judges every history. ``broken`` has protocols with one mistake each; all must
be caught.
"""
