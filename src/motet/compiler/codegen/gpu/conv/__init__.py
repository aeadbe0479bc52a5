"""Convolutions and other windows on GPUs: which launches they are, and how they are cut."""
