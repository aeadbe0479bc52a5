"""Analyses and launch plans that all GPU code generators share."""
