"""All mutants, in the order in which they are tried."""

from tests.mutation import batches, process, queue, rows, statements

MUTANTS = [*rows.MUTANTS, *statements.MUTANTS, *batches.MUTANTS, *process.MUTANTS, *queue.MUTANTS]
