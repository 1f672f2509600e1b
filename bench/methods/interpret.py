"""Explainable boosting of InterpretML at its defaults: additive boosted trees with interactions of pairs."""

from interpret.glassbox import ExplainableBoostingClassifier


def make(threads, seed):
    return ExplainableBoostingClassifier(n_jobs=threads, random_state=seed)
