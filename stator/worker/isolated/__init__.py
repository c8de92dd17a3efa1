"""The process behind :class:`stator.worker.alone.Isolation`: attempts one object at a time that its worker has claimed.

It starts in ``__main__``, which needs no Django yet; ``attempts`` does the work.
"""
