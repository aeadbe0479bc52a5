"""Triton's compiler in processes of its own, and what was compiled before."""
