"""A larger variance of the default kernel, by rows whose labels are left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..kernels.default import other_start
from ..rows.clock import during
from .fit import Candidate, Fit
from .hold_out import FEW_ROWS, Subsets
from .left_out import left_out_scores, posterior_of, scores_of
from .scores import Scores, accept
from .stages import FIRST_ROWS, first_rows

# The variance with the highest bound is too small: of two classes it falls with what the inducing points cannot carry,
# and of several, a shift that all latent functions have in common changes no probability but lowers the bound. (On
# eleven sets of several classes, 40, 100, 300 and 1000 rows, raising the variance lowers the mean NLL by .046, .034,
# .012 and .010; of two classes by .011 and .001 for splice and magic.) So it is doubled, at most this many times. (With
# five, NLL of letter and pendigits, where more would be taken, is within .01 of the lowest for 40 to 1000 rows.)
DOUBLINGS = 5
# The posteriors that are scored are within so many nats of their bounds. (With the fit's ``tol`` they take three to
# four times as many passes, for the same variances on eight fits to four sets.)
NATS_OF_SCORES = 0.02


def raised_variance(fit: Fit, learned: Candidate) -> Candidate:
    """Double the default kernel's variance while this predicts left-out rows better.

    The logarithm of the factor has a standard normal prior, as the same rows have determined the length scales.
    """
    # The other schemes are those of papers, where the bound chooses the variance.
    is_default = fit.config.optimizer == "profile" and fit.config.kernel is None and len(learned.prior.groups) == 1
    parts = _parts(fit, learned) if is_default and not fit.run.skipped else None
    if parts is None:
        return learned
    (part, left_out), first = parts, learned.prior
    best, raised, scored = -np.inf, learned, list[Scores]()
    with during("the choice of the variance"):
        for times in 2.0 ** np.arange(DOUBLINGS + 1):
            prior = first.rebuilt([other_start(first.spec, (1.0, times))], first.Z)
            point = posterior_of(part, replace(raised, prior=prior), NATS_OF_SCORES)
            scores = left_out_scores(part, point) if left_out is part else scores_of(left_out, point)
            total = float(scores.weight @ scores.values) - 0.5 * np.log(times) ** 2
            if total <= best:
                break
            scored.append(scores)
            best, raised = total, raised.at(point.q, point.site)
            fit.run.update(point.q, point.site)
    if len(scored) > 1:
        option = f"{2.0 ** (len(scored) - 1):g} times the variance of the kernel without neighbours"
        accept(scored[-1].above(scored[0]), option, fit.run.history)
    return raised


def _parts(fit: Fit, learned: Candidate) -> tuple[Fit, Fit] | None:
    """Fits to rows that find a posterior, and to left-out rows that score it; None if these could not decide.

    Of several classes these are the same rows, left out in turn. With two classes their labels have chosen the length
    scales, so that such scores flatter large variances: a part of the rows is held out.
    """
    random_state = fit.run.random_state
    if fit.record.is_multi_class:
        part = fit.part(Subsets(fit.source.y, random_state).rows(FIRST_ROWS))
        return (part, part) if fit.hold_out.is_random else None
    # A splitter may hold out rows of a later time, which may need another variance than new rows do.
    if fit.source.n_rows < FEW_ROWS or fit.hold_out.splitter is not None:
        return None
    support, held_out = fit.hold_out.decision()
    some = Subsets(fit.source.y[support], random_state).rows(first_rows(fit, learned.prior.n_inducing))
    part = fit.part(support if some is None else support[some])
    return (part, fit.part(held_out)) if len(held_out) else None
