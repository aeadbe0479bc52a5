"""Kernels that no class takes: upstream's loops, with checks of indices."""
