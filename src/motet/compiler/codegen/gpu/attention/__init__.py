"""Attention on GPUs: its loops in memory, and the tiles that it is made of."""
