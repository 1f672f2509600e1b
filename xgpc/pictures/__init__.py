"""Displays: what is drawn, and how."""
