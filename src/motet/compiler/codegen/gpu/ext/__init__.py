"""Sorts, scans and scatters on GPUs: what they are, and how their lines are cut."""
