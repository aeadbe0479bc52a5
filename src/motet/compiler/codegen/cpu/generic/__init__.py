"""Kernels that no class supports: upstream's loops, with checks of indices."""
