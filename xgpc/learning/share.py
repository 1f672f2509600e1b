"""Whether the latent functions of several classes share a kernel: the decision of ``share="auto"``."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from ..approximations.base import SeparatePriors
from ..inference.ascent import starting_posterior
from ..inference.history import History
from ..rows.source import ArraySource, labels_and_weights
from .paired import is_better
from .profile import Options, profile
from .queries import Split
from .stages import MAX_MOVING, Subsets, subset_sizes
from .stages import learn as learn_stages
from .start import Beginning, Data, Learned

# Of fewer rows in all those that are kept apart cannot tell.
LEAST_ROWS = 1000
# Rows to learn from before the decision, at most, and the share of all rows that is kept apart to be asked.
MOST_ROWS, ASKED_SHARE = 3000, 2 / 3
# Iterations with a kernel for each class, from the one that was learned for all, before they are compared.
TRIAL_ITERATIONS = 10
# Most iterations in the last stage, after these.
EACH_ITERATIONS = 30


def learn(model: Any, data: Data, beginning: Beginning) -> Learned:
    """As of ``stages``; with ``share="auto"`` also whether each class has a kernel and inducing points of its own."""
    each = _better(model, data, beginning)
    if each is None:
        return learn_stages(model, data, beginning)
    start = replace(beginning, prior=each.prior, previous=each.q, site=each.site)
    return replace(learn_stages(model, data, start, EACH_ITERATIONS), beginning=beginning)


def _better(model: Any, data: Data, beginning: Beginning) -> Learned | None:
    """A kernel for each class, learned from some of the rows, if that is better than one; the history gets the reason.

    One kernel for all is learned from the same rows first: there the others begin. Both are asked for rows kept apart.
    """
    if not _is_open(model, data, beginning):
        return None
    # Where one kernel is better the fit goes on as if nothing had been drawn.
    apart = replace(data, random_state=copy.deepcopy(data.random_state), history=History())
    rows, asked = _split(model, apart, beginning)
    if not len(asked):
        return None
    one = learn_stages(model, apart, replace(beginning, training=beginning.training.part(rows)))
    each = _one_for_each(model, one)
    source = beginning.training.source.sample(asked)
    gains, weight = _scores(data, each, source) - _scores(data, one, source), labels_and_weights(source)[1]
    is_each, words = is_better(gains, weight)
    verdict = "taken" if is_each else "left"
    data.history.add(decision=f"a kernel for each class changes {words}, against one for all: {verdict}")
    return each if is_each else None


def _is_open(model: Any, data: Data, beginning: Beginning) -> bool:
    """Whether there is something to decide: of a warm start there was."""
    return (
        model.share == "auto"
        and data.likelihood.multi_class
        and len(data.classes) > 2
        and model.kernel is None
        and model.optimizer == "profile"
        and (model.batch_size is None or model.batch_size >= data.source.n_rows)
        and not beginning.prior.is_full
        and beginning.previous is None
    )


def _split(model: Any, data: Data, beginning: Beginning) -> Split:
    """Rows to learn from, and rows to ask; of few rows none to ask."""
    if data.source.n_rows < LEAST_ROWS:
        return np.arange(0), np.arange(0)
    rows, asked = replace(data.queries, random_state=data.random_state).decision(ASKED_SHARE)
    size = min(MOST_ROWS, subset_sizes(len(rows), beginning.prior.n_inducing, model.subset_sizes)[0])
    some = Subsets(data.source.labels()[rows], data.random_state).rows(size)
    return rows if some is None else rows[some], asked


def _one_for_each(model: Any, one: Learned) -> Learned:
    """A kernel and inducing points for each class, by some iterations on the same rows, from those for all."""
    training, site = one.beginning.training, one.site
    prior = SeparatePriors((one.prior.groups[0],) * site.n_latents)
    start = starting_posterior(training, one.q, prior, site)
    learn_inducing = bool(model.learn_inducing) and prior.n_inducing <= MAX_MOVING
    options = Options(learn_inducing, float(model.tol), min(TRIAL_ITERATIONS, int(model.max_iter)), History())
    found = profile(training, start, site, options)
    return Learned(one.beginning, found.q, found.q.prior, found.site)


def _scores(data: Data, learned: Learned, source: ArraySource) -> np.ndarray:
    """log p(y) (r,) of rows that it was not learned from."""
    assert learned.q is not None
    y = source.labels().astype(np.intp)
    mean, variance = learned.q.marginals(source.X, learned.beginning.training.executor.n_threads)
    found = data.likelihood.log_probabilities(data.bound, mean.T, variance.T, learned.site.parameter)
    return np.asarray(found[np.arange(len(y)), y])
