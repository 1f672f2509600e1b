"""scikit-learn's kernels: what they are made of, compiled, and their gradients."""
