"""Kernels over rows and plain loops: normalisations, reductions, element-wise work, movement."""
