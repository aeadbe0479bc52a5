"""Convolutions and reductions over windows on GPUs."""
