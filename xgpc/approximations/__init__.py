"""What a posterior is: with inducing points, of a full Gaussian process, of a linear model."""
