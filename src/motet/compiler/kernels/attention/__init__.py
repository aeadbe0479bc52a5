"""Attention: its description, and the recognition of kernels that compute it."""
