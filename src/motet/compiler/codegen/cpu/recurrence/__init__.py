"""Loops over tensors whose bodies are kernels: recurrences, scans, and solvers."""
