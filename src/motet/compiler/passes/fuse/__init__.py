"""Fusion: partitions a normalised program into kernels, and outlines each into a function."""
