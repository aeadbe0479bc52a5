"""The text of Triton programs."""
