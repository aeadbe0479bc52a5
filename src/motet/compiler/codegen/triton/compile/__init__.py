"""Runs Triton's compiler in separate processes and caches its results."""
