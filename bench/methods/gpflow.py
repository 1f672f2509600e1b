"""GPflow's sparse variational Gaussian process: natural gradients for the posterior, Adam for all else."""

import gpflow
import numpy as np
import tensorflow as tf
from scipy.special import softmax

from .checkpoints import DRAWS, N_INDUCING, PREDICTED_ROWS, Trained, start_centres

# Of natural gradients and of Adam, as in GPflow's own notebook on natural gradients.
NATURAL_RATE, ADAM_RATE = 0.1, 0.01


class SparseVariational(Trained):
    """Natural gradients and Adam in mini-batches with the probit link, of several classes softmax.

    Without a ``natural_rate`` Adam moves the posterior, too: natural gradients of 100 rows at a time end in NaN after 4
    steps at a rate of .1, after 38 at .03, after 1409 at .01 (electricity).

    Softmax by draws, as its robust maximum has no finite natural gradients here: the precision is soon not positive.
    """

    def _start(self, X, y):
        if tf.config.threading.get_intra_op_parallelism_threads() != self.threads:
            # TensorFlow takes it before its first operation only, and says so otherwise.
            tf.config.threading.set_intra_op_parallelism_threads(self.threads)
        tf.random.set_seed(self.seed)
        C = int(np.max(y)) + 1
        labels = y[:, None].astype(np.float64 if C == 2 else np.int64)
        rows = tf.data.Dataset.from_tensor_slices((X, labels)).repeat()
        batches = iter(rows.shuffle(len(X), seed=self.seed).batch(self.batch_rows))
        kernel = gpflow.kernels.SquaredExponential(lengthscales=np.full(X.shape[1], X.shape[1] ** 0.5))
        Z = start_centres(X, N_INDUCING, self.seed)
        likelihood = gpflow.likelihoods.Bernoulli() if C == 2 else gpflow.likelihoods.Softmax(C)
        latents = 1 if C == 2 else C
        self.model_ = gpflow.models.SVGP(kernel, likelihood, Z, num_latent_gps=latents, num_data=len(X))
        posterior = self.model_.q_mu, self.model_.q_sqrt
        natural_rate = self.settings.get("natural_rate", NATURAL_RATE)
        is_natural = natural_rate is not None
        for parameter in posterior:
            gpflow.set_trainable(parameter, not is_natural)
        loss = self.model_.training_loss_closure(batches)
        natural, adam = gpflow.optimizers.NaturalGradient(natural_rate), tf.optimizers.Adam(ADAM_RATE)

        @tf.function
        def step():
            if is_natural:
                natural.minimize(loss, [posterior])
            # Keras 3 has no ``minimize``.
            with tf.GradientTape() as tape:
                value = loss()
            variables = self.model_.trainable_variables
            adam.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))

        self._steps = step

    def _step(self):
        try:
            self._steps()
        except tf.errors.InvalidArgumentError as error:
            # A matrix that has no Cholesky factor.
            raise ArithmeticError(error.message) from None

    def predict_proba(self, X):
        parts = np.array_split(X, max(1, len(X) // PREDICTED_ROWS))
        if self.model_.num_latent_gps > 1:
            mean, variance = (np.concatenate(part) for part in zip(*map(self.model_.predict_f, parts), strict=True))
            draws = np.random.default_rng(0).normal(mean, np.sqrt(variance), (DRAWS, *mean.shape))
            return softmax(draws, axis=-1).mean(axis=0)
        p = np.concatenate([self.model_.predict_y(rows)[0].numpy().ravel() for rows in parts])
        return np.column_stack([1 - p, p])


make = SparseVariational
