"""Displays: the numbers in a picture, and functions that draw them."""
