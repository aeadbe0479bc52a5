"""Reads MLIR functions into kernels."""
