"""The rows that a model with neighbours keeps, if it may not keep all: more of those whose class is uncertain."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._sites import Site
from ..approximations.base import KernelPosterior, Training
from ..data.survey import keys_from
from ..inference.run import Run
from ..rows.block import Block
from ..rows.executor import Cost
from ..rows.source import ArraySource
from ..statistics import Marginalizer
from .hold_out import HoldOut
from .start import Data, InitialState

# The chance of a row that is certain, relative to that of one of even odds: about a third.
LEAST_CHANCE = 0.3
# Rows from which the sum of all chances is estimated, and the share of rows drawn beyond it for its error, which is
# below a hundredth.
ESTIMATED_FROM, MARGIN = 20_000, 1.05


@dataclass(frozen=True)
class Draw:
    """A random key for each row, uniform in (0, 1 / chance): rows of keys below ``bound`` are drawn."""

    marginalizer: Marginalizer
    site: Site
    seed: int
    bound: float

    @property
    def cost(self) -> Cost:
        return self.marginalizer.cost

    def chances(self, block: Block) -> np.ndarray:
        """The standard deviation of a row's label (r,) under the posterior, plus ``LEAST_CHANCE``."""
        site, (mean, variance) = self.site, self.marginalizer.marginals(block)
        if site.n_latents == 1:
            mean, variance = mean[0], variance[0]
        log_p = site.record.log_probabilities(mean.T + site.prior_mean, variance.T, site.parameter)
        return LEAST_CHANCE + np.sqrt(np.maximum(1.0 - np.sum(np.exp(2.0 * log_p), axis=1), 0.0))


def drawn(block: Block, state: Draw) -> tuple[np.ndarray, ...]:
    """Keys, chances, numbers, features, labels and weights of the rows that are drawn."""
    chances = state.chances(block)
    keys = keys_from(np.array([state.seed]), block.start).random(len(block)) / chances
    rows = np.flatnonzero(keys < state.bound)
    weight = block.weight[rows] if len(block.weight) else np.ones(len(rows))
    return keys[rows], chances[rows], block.start + rows, block.X[rows], block.y[rows], weight


def uncertain_rows(
    data: Data, run: Run, initial: InitialState, q: KernelPosterior, site: Site, limit: int
) -> tuple[Data, InitialState]:
    """Data and state of ``limit`` of all rows, drawn with chances that a posterior without neighbours gives.

    A row's weight is divided by its chance, so that weighted sums over the drawn rows have the expectation that they
    have for a random sample of as many. The rows of the least keys are drawn, which is sequential Poisson sampling
    (Ohlsson, Journal of Official Statistics 14, 1998). A pass over all rows.
    """
    source, training = data.stream or data.source, initial.training
    draw = Draw(q.marginalizer_anywhere, site, data.seed, np.inf)
    few = training.source.sample(np.linspace(0, len(training) - 1, min(len(training), ESTIMATED_FROM), dtype=np.intp))
    mean_chance = np.mean(np.concatenate([draw.chances(block) for block in few.blocks()]))
    draw = replace(draw, bound=MARGIN * limit / (source.n_rows * mean_chance))
    found = Training(source, training.executor, training.n_latents).uncached().map(drawn, draw)
    keys, chances, numbers, X, y, weight = (np.concatenate(parts) for parts in zip(*found, strict=True))
    bound = draw.bound
    if len(keys) > limit:
        bound = np.partition(keys, limit)[limit]
        rows = np.flatnonzero(keys < bound)
        chances, numbers, X, y, weight = (one[rows] for one in (chances, numbers, X, y, weight))
    weight *= limit / source.n_rows / np.minimum(1.0, bound * chances)
    kept = ArraySource(X, y, weight)
    if data.stream is None:
        hold_out = data.hold_out.among(numbers)
    else:
        # Rows of a stream have no groups.
        hold_out = HoldOut(len(y), None, data.hold_out.splitter, y, data.hold_out.random_state)
    run.history.add(
        decision=f"Neighbours are searched among {len(y)} of {source.n_rows} rows: those whose class is uncertain were "
        "drawn more often, and the others have more weight; max_rows_in_model sets the number."
    )
    training = replace(training, source=kept)
    return replace(data, source=kept, hold_out=hold_out), replace(initial, training=training, hold_out=hold_out)
