"""Counters of evaluations, one module for each source."""
