"""Fit to a folder of Parquet files on a Ray cluster: python ray_recipe.py FOLDER LABEL MODEL.npz."""

import sys

import ray

from xgpc import GPClassifier
from xgpc.partitions import in_partition


@ray.remote
def applied(function, batch, common, one):
    return function(batch, common, one)


@ray.remote
def split(table, label):
    return table.drop(columns=label), table[label]


class RayPartitions:
    """References to (X, y) or (X, y, sample_weight): objects in Ray's store, or what remote functions return."""

    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return len(self.batches)

    def run(self, function, common, each):
        common = ray.put(common)
        tasks = [applied.remote(function, batch, common, one) for batch, one in zip(self.batches, each, strict=True)]
        try:
            for number in range(len(self)):
                with in_partition(number):
                    result = ray.get(tasks[0])
                # Without a reference its result leaves the store.
                tasks.pop(0)
                yield result
        finally:
            for task in tasks:
                ray.cancel(task)


if __name__ == "__main__":
    folder, label, path = sys.argv[1:]
    tables = ray.data.read_parquet(folder).to_pandas_refs()
    partitions = RayPartitions([split.remote(table, label) for table in tables])
    GPClassifier(n_inducing=100, random_state=0).fit_batches(partitions).save(path)
