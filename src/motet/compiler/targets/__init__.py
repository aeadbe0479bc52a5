"""Targets: tables of the properties of CPUs and GPUs that code generators need."""
