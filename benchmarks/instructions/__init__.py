"""Instruction counts of compiled kernels: a regression test that a busy machine cannot disturb."""
