"""Compares Motet with its peers on many operators and networks for which it was not tuned."""
