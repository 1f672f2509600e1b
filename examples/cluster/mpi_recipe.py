"""Fit to Parquet files, a partition each: mpirun -n 5 python -m mpi4py mpi_recipe.py LABEL MODEL.npz FILE ..."""

import sys
from functools import cache

import pandas as pd
from mpi4py import MPI

from xgpc import GPClassifier
from xgpc.partitions import in_partition


class MPIPartitions:
    """Partition i is with rank 1 + i % (size - 1), which must ``serve``; rank 0 learns, and adds what they answer."""

    def __init__(self, comm, n):
        self.comm, self.n = comm, n

    def __len__(self):
        return self.n

    def run(self, function, common, each):
        self.comm.bcast((function, common, each))
        numbers = iter(range(self.n))
        try:
            for number in numbers:
                yield self.comm.recv(source=1 + number % (self.comm.size - 1))
        finally:
            # Answers that nobody waits for are on their way all the same.
            for number in numbers:
                self.comm.recv(source=1 + number % (self.comm.size - 1))

    def serve(self, load):
        """Answer until rank 0 says None; ``load(i)`` gives (X, y) or (X, y, sample_weight) of a partition."""
        while (asked := self.comm.bcast(None)) is not None:
            function, common, each = asked
            for number in range(self.comm.rank - 1, self.n, self.comm.size - 1):
                with in_partition(number):
                    self.comm.send(function(load(number), common, each[number]), dest=0)


if __name__ == "__main__":
    label, path, *files = sys.argv[1:]
    partitions = MPIPartitions(MPI.COMM_WORLD, len(files))
    if MPI.COMM_WORLD.rank:
        tables = cache(lambda i: pd.read_parquet(files[i]))
        partitions.serve(lambda i: (tables(i).drop(columns=label), tables(i)[label]))
    else:
        GPClassifier(n_inducing=100, random_state=0).fit_batches(partitions).save(path)
        MPI.COMM_WORLD.bcast(None)
