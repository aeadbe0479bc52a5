"""Functions of MLIR read into kernels."""
