"""The process of :class:`stator.worker.alone.Isolation`: attempts objects that its worker has claimed, one at a time.

It begins in ``__main__``, which needs no Django yet; ``attempts`` does the work.
"""
