"""Contractions on GPUs: matching launches, and choosing tiles."""
