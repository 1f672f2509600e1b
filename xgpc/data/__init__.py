"""Whatever rows are given as, checked: arrays, data frames, sparse matrices, batches and partitions."""
