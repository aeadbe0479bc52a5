"""Contractions on GPUs: which launches they are, and the tiles that they are made of."""
