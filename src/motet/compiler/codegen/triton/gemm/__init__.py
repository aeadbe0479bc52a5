"""Products and contractions on GPUs, and their ranking."""
