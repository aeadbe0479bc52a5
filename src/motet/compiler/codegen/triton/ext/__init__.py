"""Sorts, scans and scatters on GPUs."""
