"""What the tests of formulas need of the package's inner parts, by name: these alone hold its shape in place.

All else that tests ask for is public: the names of docs/api.md, the registry of likelihoods, the compiled core.
"""

# ruff: noqa: F401

from xgpc import statistics
from xgpc.approximations.base import Training, grouped, new_key
from xgpc.approximations.full import FullPosterior, FullPrior
from xgpc.approximations.linear import LinearPrior
from xgpc.approximations.local import LocalPosterior, covariance_bytes
from xgpc.approximations.local_rows import Coefficients, Neighbourhoods, in_order, local_rows, metric
from xgpc.approximations.sparse import SparsePosterior, SparsePrior
from xgpc.gibbs.diagnostics import effective_sample_size, split_r_hat
from xgpc.inference import correction
from xgpc.inference.ascent import (
    DAMPED,
    MEASURED,
    coordinate_ascent,
    coupled_end,
    natural_step,
    projected,
    proper_posterior,
    starting_posterior,
    steps_from,
    update,
)
from xgpc.inference.fitting import projected_sums
from xgpc.inference.history import History
from xgpc.inference.local_sites import Local, Sweep
from xgpc.inference.mini_batch import MiniBatches, mini_batch_ascent
from xgpc.inference.options import Options
from xgpc.inference.sweeps import converged_sites, start_sites
from xgpc.kernels.features import Groups
from xgpc.kernels.prior import DEFAULT_LEVEL, DEFAULT_SPREAD, LengthScalePrior
from xgpc.kernels.spec import KernelSpec
from xgpc.learning.held_out_score import LOG_SCALE_SPREAD, WORST_SCORE, HeldOutScore, inverse_diagonal
from xgpc.learning.inducing import fit_bytes
from xgpc.learning.izmailov_kropotov import FixedSitesBound, JointBound
from xgpc.learning.optimizer import Coordinates, ProfiledBound, profile
from xgpc.learning.scores import LEAST_GAIN, Scores, accept
from xgpc.likelihoods.curvature import LEAST_COMPLEMENT
from xgpc.rows.block import BLOCK_ROWS, Block, Cache, block_size
from xgpc.rows.coinciding import Distinct
from xgpc.rows.executor import Executor
from xgpc.rows.neighbours import Metric, Neighbours
from xgpc.rows.source import ArraySource
