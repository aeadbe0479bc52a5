"""Shared by the code generators for GPUs."""
