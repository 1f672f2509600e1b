"""The local posterior of all rows, under the kernel that was learned in rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar

from .._sites import Site
from ..approximations.local import LocalPosterior
from ..approximations.local_rows import blocks_for, in_order, metric
from ..inference.local_sites import Local
from ..inference.sweeps import Swept, converged_sites
from ..likelihoods import label_log_probabilities
from ..rows.coinciding import Sites
from ..rows.neighbours import Neighbours
from .held_out_score import LOG_SCALE_SPREAD
from .rounds import Placed, round_tolerance
from .scores import Scores

# With several classes, the sites of held-out rows start with at least this precision. Where a wrong class is nearly
# certain the precision almost vanishes, and without this limit 18 of 188 fits did not converge.
LEAST_FIRST = 0.01


class AllRows(Placed):
    """All rows of the data with their neighbours, to predict held-out rows, and then to fit the final posterior.

    One search serves both: held-out rows have weight zero, and so no sites, until they join the others.
    """

    def sweep(self, local: Local, sites: Sites, tol: float | None = None) -> Swept:
        """Sweep from ``sites`` of all rows until those of the distinct rows agree, as in ``converged_sites``."""
        history, size = self.task.fit.run.history, {"n_rows": len(self.weight), "n_inducing": local.prior.n_inducing}
        history.tell(stage="neighbours", **size)
        sweeps = converged_sites(local, self.by_place(sites), tol)
        history.add(**size, n_neighbors=local.index.shape[1], sweeps=sweeps.n_sweeps)
        return sweeps._replace(sites=self.as_given(sweeps.sites), predicted=self.as_given(sweeps.predicted))

    def without(self, held_out: np.ndarray, sites: Sites) -> tuple[Swept, HeldOutPredictions]:
        """The sites of the distinct rows if held-out rows have weight zero, and the predictions of the held-out rows.

        The sweeps start from ``sites`` of all rows. A held-out row with a copy among the other rows is predicted from
        this copy's site, too.
        """
        weight, sites_without, local = self.weight.copy(), sites.copy(), self.local
        weight[held_out] = sites_without[:, :, held_out] = 0.0
        place = self.distinct.place[held_out]
        weight = np.bincount(self.distinct.place, weight)[self.neighbours.order]
        local = replace(local, labels=(local.labels[0], weight))
        if not self.task.fit.hold_out.is_random:
            # Held-out rows are near each other here: as neighbours without sites they would displace rows with sites. A
            # random tenth of the rows displaces only a tenth, for which another search does not pay.
            index, n_earlier = self._nearest_among(weight > 0.0)
            local = replace(local, index=index, n_earlier=n_earlier, blocks=blocks_for(*index.shape))
        sweeps = self.sweep(local, sites_without, round_tolerance(local.site))
        mean, variance = sweeps.predicted[:, :, place]
        variance, labels = np.exp(self.log_scale) * variance, self.distinct.source.y[place]
        return sweeps, HeldOutPredictions(mean, variance, local.site, labels, self.weight[held_out])

    def _nearest_among(self, is_support: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Neighbours of all rows of ``local`` among those with ``is_support``, as from ``in_order``."""
        order, local = self.neighbours.order, self.local
        X, n_threads = self.distinct.source.X[order], local.executor.n_threads
        support, others = np.flatnonzero(is_support), np.flatnonzero(~is_support)
        neighbours = Neighbours(X[support], metric(local.prior.core))
        k = min(local.index.shape[1], len(support) - 1)
        index = np.empty((len(X), k), dtype=np.int32)
        index[support] = support[neighbours.of_rows(k, n_threads)]
        index[others] = support[neighbours.of(X[others], k, n_threads)]
        return in_order(index, order)

    def sites_of_all(self, sweeps: Swept, held_out: np.ndarray, predicted: HeldOutPredictions) -> Sites:
        """Sites of the distinct rows after ``sweeps``, and of held-out rows the sites at their predictions."""
        held_out_sites = np.zeros((*sweeps.sites.shape[:2], len(self.weight)))
        held_out_sites[:, :, held_out] = predicted.sites
        return sweeps.sites + self.distinct.sums(held_out_sites)

    def posterior(self, sites: Sites, log_scale: float) -> tuple[LocalPosterior, Swept]:
        """The local posterior with all labels; ``sites``, of the data's rows, are where its sweeps start."""
        prior, k, scale = self.local.prior, self.task.n_neighbors, float(np.exp(log_scale))
        sweeps = self.sweep(replace(self.local, site=self.task.site(prior, log_scale)), sites)
        # The model keeps its own read-only copy of the rows, in the order in which they were given.
        source, q, (precision, linear) = self.distinct.source, sweeps.q, sweeps.sites
        X, y, weight = (np.array(part, order="C") for part in (source.X, source.y, source.weight))
        posterior = LocalPosterior(prior, X, y, weight, precision, linear, q.w, q.V, min(k, len(X)), scale)
        posterior.keep(self.neighbours)
        return posterior, sweeps


@dataclass(frozen=True)
class HeldOutPredictions:
    """Means and variances (C, r) of held-out rows, their site function, labels and weights."""

    mean: np.ndarray
    variance: np.ndarray
    site: Site
    y: np.ndarray
    weight: np.ndarray

    @property
    def scores(self) -> Scores:
        return Scores(label_log_probabilities(self.site, self.mean, self.variance, self.y), self.weight)

    @property
    def sites(self) -> Sites:
        """Sites of these rows at their predictions, from which sweeps start."""
        precision, linear = self.site.record.cavity.sites(self.site, self.mean, self.variance, self.y)
        if self.site.record.curvature is not None:
            precision = np.maximum(precision, LEAST_FIRST)
        return self.weight * np.array([precision, linear])

    def log_scale(self, present: float, bounds: tuple[float, float]) -> float:
        """Fit the logarithm of the variance factor to these rows, with a prior at its present value.

        A round has few support rows, so its predictions are less certain than those from all rows.
        """

        def minus_log_posterior(change: float) -> float:
            values, _ = self.site.record.cavity.scores(self.site, self.mean, np.exp(change) * self.variance, self.y)
            return float(0.5 * (change / LOG_SCALE_SPREAD) ** 2 - self.weight @ values)

        low, high = bounds
        best = minimize_scalar(minus_log_posterior, bounds=(low - present, high - present), method="bounded")
        return present + float(best.x)
