"""Kernels as plain data, read once for every back end. Imports neither LLVM nor Triton."""
