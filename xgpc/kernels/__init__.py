"""scikit-learn's kernels: compilation, gradients, and the prior of length scales."""
