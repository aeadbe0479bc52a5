"""Intentionally empty: see the docstring of the package."""
