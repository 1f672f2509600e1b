"""Kernel parameters and inducing points: what is learned, how, and from which rows."""
