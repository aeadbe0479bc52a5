"""Partitioning: fuse operations into kernels, and give each a function of its own."""
