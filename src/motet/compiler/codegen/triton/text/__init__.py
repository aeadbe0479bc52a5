"""Writes the text of Triton programs."""
