"""GPyTorch's sparse variational Gaussian process with the parts that its documentation recommends."""

import itertools

import gpytorch
import numpy as np
import torch
from scipy.special import ndtr

from .checkpoints import DRAWS, N_INDUCING, PREDICTED_ROWS, Trained, start_centres

ADAM_RATE = 0.01


class Process(gpytorch.models.ApproximateGP):
    """One latent function for two classes; one for each of more, with one kernel and inducing points for all."""

    def __init__(self, Z, n_classes):
        several = {"batch_shape": torch.Size([n_classes])} if n_classes > 2 else {}
        q = gpytorch.variational.CholeskyVariationalDistribution(len(Z), **several)
        strategy = gpytorch.variational.VariationalStrategy(self, Z, q, learn_inducing_locations=True)
        if several:
            strategy = gpytorch.variational.IndependentMultitaskVariationalStrategy(strategy, num_tasks=n_classes)
        super().__init__(strategy)
        self.mean_module = gpytorch.means.ZeroMean()
        rbf = gpytorch.kernels.RBFKernel(ard_num_dims=Z.shape[1])
        rbf.lengthscale = Z.shape[1] ** 0.5
        self.covar_module = gpytorch.kernels.ScaleKernel(rbf)
        # Where GPflow's begins, too.
        self.covar_module.outputscale = 1.0

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class SparseVariational(Trained):
    """Adam in mini-batches with the probit link, of several classes softmax."""

    def _start(self, X, y):
        torch.set_num_threads(self.threads)
        torch.manual_seed(self.seed)
        C = int(np.max(y)) + 1
        self._X = torch.as_tensor(X, dtype=torch.float32)
        self._y = torch.as_tensor(y, dtype=torch.float32 if C == 2 else torch.long)
        Z = torch.as_tensor(start_centres(X, N_INDUCING, self.seed), dtype=torch.float32)
        self.model_ = Process(Z, C)
        if C == 2:
            self.likelihood_ = gpytorch.likelihoods.BernoulliLikelihood()
        else:
            self.likelihood_ = gpytorch.likelihoods.SoftmaxLikelihood(num_classes=C, mixing_weights=False)
        self._bound = gpytorch.mlls.VariationalELBO(self.likelihood_, self.model_, num_data=len(X))
        self._adam = torch.optim.Adam(self.model_.parameters(), lr=ADAM_RATE)
        self._batches = (rows for _ in itertools.count() for rows in torch.randperm(len(X)).split(self.batch_rows))

    def _step(self):
        rows = next(self._batches)
        self._adam.zero_grad()
        # RuntimeError: a covariance matrix that is singular in float32.
        loss = -self._bound(self.model_(self._X[rows]), self._y[rows])
        loss.backward()
        self._adam.step()

    def predict_proba(self, X):
        """The probit link's probability is the normal cdf of mean / sqrt(1 + var)."""
        self.model_.eval()
        with torch.no_grad():
            parts = torch.as_tensor(X, dtype=torch.float32).split(PREDICTED_ROWS)
            latent = [self.model_(rows) for rows in parts]
            mean = torch.cat([f.mean for f in latent]).double()
            variance = torch.cat([f.variance for f in latent]).double()
        self.model_.train()
        if mean.ndim == 2:
            draws = mean + torch.sqrt(variance) * torch.randn(DRAWS, *mean.shape, dtype=mean.dtype)
            return torch.softmax(draws, dim=-1).mean(dim=0).numpy()
        margin = mean.numpy() / np.sqrt(1 + variance.numpy())
        return np.column_stack([ndtr(-margin), ndtr(margin)])


make = SparseVariational
