"""Whether a fit has neighbours: which fits can, what they learn, and the decision of ``n_neighbors="auto"``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..approximations.base import KernelPosterior
from ..approximations.local import LocalPosterior
from ..inference.ascent import coordinate_ascent, starting_posterior
from ..inference.history import History
from ..inference.links import LINKS
from ..inference.local_sites import start_sites
from ..rows.source import ArraySource
from .local import DEFAULT_NEIGHBORS, Learnt, Task, decide, fit_sites, learn_local
from .query_score import Scores
from .stages import learn as learn_sparse
from .start import Beginning, Data, Learned

# Fewer rows cannot tell by a few per cent of them whether neighbours pay.
MIN_ROWS = 2000
# Gain of the mean log probability, in nats, that more inducing points do not reach: where neighbours gained less, these
# are looked at before the decision (magic: .008 against 32 points, a loss against 512; electricity: .33, and .07 to .1
# by a thousand points, which take two minutes).
LARGE_GAIN = 0.1


def neighbors_of(model: Any, data: Data) -> tuple[int, str]:
    """How many neighbours a fit looks at, 0 for none; and what to say of it where they were asked for but cannot be.

    Raises
    ------
    ValueError
        For a number of neighbours where there can be none.
    """
    wanted, is_auto = model.n_neighbors, isinstance(model.n_neighbors, str)
    if not is_auto and wanted == 0:
        return 0, ""
    reason = _why_not(model, data)
    if reason and not is_auto:
        raise ValueError(f"n_neighbors={wanted} {reason}. Leave n_neighbors='auto', or give 0.")
    # With several classes they take ten times what a fit takes without: only where they are asked for.
    if reason or (is_auto and (data.likelihood.multi_class or data.source.n_rows < MIN_ROWS)):
        return 0, ""
    if model.batch_size is not None and model.batch_size < data.source.n_rows:
        return 0, "neighbours are not for mini-batches: none are taken"
    if not isinstance(data.source, ArraySource):
        return 0, "neighbours must be in memory, which these rows are not: none are taken"
    return (DEFAULT_NEIGHBORS if is_auto else min(int(wanted), data.source.n_rows - 1)), ""


def _why_not(model: Any, data: Data) -> str:
    """Why there can be no neighbours, if so."""
    name, bound = data.likelihood.name, data.bound
    if (name, bound) not in LINKS:
        allowed = ", ".join(f"{one!r} with bound {of!r}" for one, of in LINKS)
        return f"is for likelihood {allowed}; this is {name!r} with bound {bound!r}"
    if data.likelihood.multi_class and model.share != "kernel":
        return f"is for latent functions that share their kernel (share='kernel'); got share={model.share!r}"
    if isinstance(model.inducing_points, str) and model.inducing_points == "all":
        return "is for inducing points; a full Gaussian process has a latent value at each row"
    return ""


def learn(model: Any, data: Data, beginning: Beginning) -> Learned:
    """Hyperparameters and inducing points, and with neighbours what is learned of these."""
    k, note = neighbors_of(model, data)
    if note:
        data.history.add(decision=note)
    if not k or not isinstance(data.source, ArraySource):
        return _learn_sparse(model, data, beginning)
    is_auto = isinstance(model.n_neighbors, str)
    link = LINKS[data.likelihood.name, data.bound](len(data.classes))
    rows, asked = np.arange(data.source.n_rows), np.arange(0)
    part = beginning.training
    if is_auto:
        rows, asked = data.queries.decision()
        part = part.part(rows)
    sparse = _learn_sparse(model, data, replace(beginning, training=part, grow=False))
    task = Task(
        part.executor,
        data.source.sample(rows) if is_auto else data.source,
        link,
        part.n_latents,
        k,
        data.queries.among(rows),
        data.history,
    )
    max_iter = 0 if model.optimizer is None else int(model.max_iter)
    first = beginning.prior.groups[0].spec
    learnt = learn_local(task, sparse.prior.groups[0], first, model.kernel is None, max_iter)
    if is_auto:
        kept = _decided(model, data, sparse, task, learnt, data.source.sample(asked), beginning.grow)
        if isinstance(kept, Learned):
            start = replace(beginning, prior=kept.prior, previous=kept.q)
            return replace(_learn_sparse(model, data, start), beginning=beginning)
        local, scores = kept
        # The rows kept apart are given back.
        sites = start_sites(data.source, link)
        for all_rows, found in zip(sites, local.sites, strict=True):
            all_rows[:, rows] = found
        learnt = replace(learnt, sites=sites, scores=scores)
    return replace(
        sparse,
        beginning=beginning,
        prior=learnt.prior,
        n_iter=sparse.n_iter + learnt.n_iter,
        task=replace(task, source=data.source),
        learnt=learnt,
    )


def _learn_sparse(model: Any, data: Data, beginning: Beginning) -> Learned:
    if model.optimizer is None and not beginning.grow:
        return Learned(beginning, beginning.previous, beginning.prior, beginning.site)
    return learn_sparse(model, data, beginning)


def _decided(
    model: Any, data: Data, sparse: Learned, task: Task, learnt: Learnt, others: ArraySource, grow: bool
) -> tuple[LocalPosterior, Scores] | Learned:
    """The local posterior of the rows that were learned from, and its scores of others; or what is better without.

    A gain that more inducing points could have, too, is compared with theirs, if they may become more.
    """
    local, sweeps = fit_sites(task, learnt)
    counts = {"n_rows": task.source.n_rows, "n_neighbors": task.n_neighbors, "sweeps": sweeps.n_sweeps, "searches": 1}
    if not sweeps.converged:
        reason = f"the sites of {task.n_neighbors} neighbours did not converge in {sweeps.n_sweeps} sweeps: left"
        data.history.add(**counts, decision=reason)
        return sparse
    decision = decide(local, _fitted(model, sparse), others, task)
    data.history.add(**counts, query_score=decision.local.mean, decision=decision.reason)
    if decision.is_local and grow and decision.gain < LARGE_GAIN:
        training = replace(sparse.beginning, prior=sparse.prior, previous=sparse.q, grow=True)
        sparse = replace(_learn_sparse(model, data, training), beginning=sparse.beginning)
        decision = decide(local, _fitted(model, sparse), others, task)
        data.history.add(**counts, query_score=decision.local.mean, decision=decision.reason)
    return (local, decision.local) if decision.is_local else sparse


def _fitted(model: Any, sparse: Learned) -> KernelPosterior:
    """The sparse posterior of the rows that it was learned from, all of them."""
    training = sparse.beginning.training
    start = starting_posterior(training, sparse.q, sparse.prior, sparse.site)
    tol, max_iter = float(model.tol), int(model.max_iter)
    return coordinate_ascent(training, start, sparse.site, tol=tol, max_iter=max_iter, history=History()).q


def infer(learned: Learned) -> tuple[LocalPosterior | None, Scores | None, str]:
    """The local posterior of all rows, scores of rows that it was not learned from, and what went short."""
    if learned.task is None or learned.learnt is None:
        return None, None, ""
    task = learned.task
    local, sweeps = fit_sites(task, learned.learnt)
    task.history.add(n_neighbors=local.n_neighbors, sweeps=sweeps.n_sweeps, searches=1)
    if sweeps.converged:
        return local, learned.learnt.scores, ""
    return (
        None,
        None,
        f"the sites of {local.n_neighbors} neighbours did not converge in {sweeps.n_sweeps} sweeps, and predictions "
        "are without them",
    )
