"""Convolutions and other window operations on GPUs: matching launches, and choosing tiles."""
