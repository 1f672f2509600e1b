"""How far below warm starts fits from the prior end, in random settings of rows, kernels and likelihoods.

    python tools/cold_starts.py [NUMBER [FIRST]]

fits that many settings (300), from that number on (0), and prints those that end more than 1e-3 nats for each nat of
the bound below the best of several continuations, with how many of these say that they did not converge. A setting
takes about a second. Those that do not say so are bugs; ``tests/test_cold_starts.py`` has a few settings.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from support.cold_starts import setting, shortfall

TOLERANCE = 1e-3


def main(number=300, first=0):
    shortfalls, n_silent, n_open = [], 0, 0
    for seed in range(first, first + number):
        given = setting(seed)
        missing, cold = shortfall(given)
        shortfalls.append(missing)
        n_open += not cold.converged_
        if missing > TOLERANCE:
            n_silent += cold.converged_
            how = "converged" if cold.converged_ else "not converged"
            bound = f"{given.options['likelihood']} {given.options['bound']}"
            print(
                f"{seed}: {given.name}, {bound}, {cold.kernel_}, m = {len(cold.inducing_points_)}: {how} after "
                f"{cold.n_iter_}, bound {cold.elbo_:.6g}, {missing:.2g} below",
                flush=True,
            )
    print(f"{number} settings: {n_open} not converged; {n_silent} of those that did end more than {TOLERANCE} below")
    print(f"largest {max(shortfalls):.2g}; below 1e-4: {sum(missing < 1e-4 for missing in shortfalls)}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
