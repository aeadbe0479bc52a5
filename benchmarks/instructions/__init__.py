"""Instruction counts of compiled kernels: a performance test that is independent of the machine's load."""
