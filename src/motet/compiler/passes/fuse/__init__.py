"""Fusion: divides a normalised program into kernels, and gives each a function."""
