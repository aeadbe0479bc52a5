"""Attention: what it is, and which kernels are it."""
