"""Warnings about a fit that the user can act on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..kernels.spec import KernelSpec

# A kernel parameter whose logarithm is this near to a bound counts as being at the bound.
AT_BOUND = 1e-3
# A warning names at most this many parameters.
LISTED = 5
# A learned bound must exceed this multiple of the log likelihood of random guessing, or it counts as no gain.
NO_GAIN = 0.999
# A feature counts as switched off if its length scale exceeds this many standard deviations: rows four deviations apart
# then have an RBF correlation above 0.99.
SWITCHED_OFF = 30.0


def parameters_at_bounds(
    specs: Sequence[KernelSpec], classes: Sequence[str], features: Sequence[str], spread: np.ndarray
) -> list[str]:
    """Messages about kernel parameters at their bounds: one for irrelevant features, one for other parameters.

    Parameters
    ----------
    specs : the learned kernel, or one for each class
    classes, features : names for the messages
    spread : (d,) standard deviations of the features
    """
    irrelevant, others, messages = [], [], []
    for c, spec in enumerate(specs):
        whose = f"class {classes[c]}: " if len(specs) > 1 else ""
        for name, of, value, (low, high) in zip(spec.names, spec.features, spec.theta, spec.bounds, strict=True):
            side = "lower" if abs(value - low) < AT_BOUND else "upper"
            if low >= high or min(abs(value - low), abs(value - high)) >= AT_BOUND:
                continue
            parameter, feature = f"{name} = {np.exp(value):.4g}", ""
            if of is not None:
                feature = features[of[0]] if len(of) == 1 or spec.groups is None else spec.groups.name_of(of[0])
                if side == "upper" and np.exp(value) > SWITCHED_OFF * np.hypot.reduce(spread[list(of)]):
                    irrelevant.append(f"{whose}length scale of {feature} ({parameter})")
                    continue
            others.append(f"{whose}{parameter} is at its {side} bound{f' ({feature})' if feature else ''}")
    if len(irrelevant) == 1:
        messages.append(
            f"The {irrelevant[0]} is at its upper bound: the feature is irrelevant; drop it or ignore this."
        )
    elif irrelevant:
        messages.append(
            f"Length scales are at their upper bounds: {_listed(irrelevant)}. The features are irrelevant; drop them "
            "or ignore this."
        )
    if others:
        messages.append(
            f"Kernel parameters have run to their bounds: {_listed(others)}. The data may not determine them: widen "
            "their bounds, or fix them. A variance at its upper bound means that the classes separate."
        )
    return messages


def _listed(found: Sequence[str]) -> str:
    more = f"; and {len(found) - LISTED} more" if len(found) > LISTED else ""
    return "; ".join(found[:LISTED]) + more


def more_iterations(problems: Sequence[str]) -> list[str]:
    """A message about parts of the fit that did not converge, because of the iteration limit or of round-off.

    All problems share one message, because advice for one kind alone may not help with the other.
    """
    if not problems:
        return []
    by_limit = ["max_iter" in problem for problem in problems]
    advice = "more iterations do not help: raise tol, or scale the features"
    if any(by_limit):
        advice = "raise max_iter for a higher bound, or tol" if all(by_limit) else "raise tol, or scale the features"
    return [f"{'; '.join(problems)}. The fit can be used; {advice}."]


def ended_early(reason: str, skipped: Sequence[str]) -> str:
    """A message that names the skipped parts of a fit that ran out of time."""
    return f"{reason} left no time for {', '.join(skipped)}. The fit can be used; more time may give a higher bound."


def no_gain(elbo: float, uniform_log_likelihood: float, base_rate: float) -> list[str]:
    """A message if the learned bound is no better than predictions without features, else an empty list.

    Parameters
    ----------
    elbo : the bound, in nats
    uniform_log_likelihood, base_rate : log likelihoods of the labels under equal and base-rate probabilities
    """
    if elbo > max(NO_GAIN * uniform_log_likelihood, base_rate):
        return []
    return [
        f"The bound, {elbo:.5g} nats, is no better than the log likelihood of the labels under the class frequencies "
        f"alone, {base_rate:.5g}: the fit has not shown that the features separate the classes. More rows may help, "
        "or a kernel whose length scales start near the distance over which the classes change."
    ]
