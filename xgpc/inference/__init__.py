"""The posterior at given hyperparameters."""
