"""Fit to a folder of Parquet files on a Spark cluster: spark-submit spark_recipe.py FOLDER LABEL MODEL.npz."""

import pickle
import sys

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession

from xgpc import GPClassifier
from xgpc.partitions import in_partition


class SparkPartitions:
    """The partitions of a data frame of numbers and a column of labels, which gives the same rows in each pass."""

    def __init__(self, frame, label):
        self.frame, self.label = frame, label

    def __len__(self):
        return self.frame.rdd.getNumPartitions()

    def run(self, function, common, each):
        label, schema = self.label, self.frame.limit(0).toArrow().schema

        def applied(batches):
            number = TaskContext.get().partitionId()
            table = pa.Table.from_batches(batches, schema)
            batch = table.drop_columns(label).to_pandas(), table[label].to_pandas()
            try:
                answer = function(batch, common, each[number]), None
            except ValueError as error:
                answer = None, error
            yield pa.record_batch([[number], [pickle.dumps(answer)]], ["number", "answer"])

        answers = self.frame.mapInArrow(applied, "number long, answer binary").collect()
        for number, packed in sorted(answers):
            with in_partition(number):
                result, error = pickle.loads(packed)
                if error is not None:
                    raise error
            yield result


if __name__ == "__main__":
    folder, label, path = sys.argv[1:]
    # Kept on the executors: the rows are read some tens of times.
    frame = SparkSession.builder.getOrCreate().read.parquet(folder).persist()
    partitions = SparkPartitions(frame, label)
    GPClassifier(n_inducing=100, random_state=0).fit_batches(partitions).save(path)
