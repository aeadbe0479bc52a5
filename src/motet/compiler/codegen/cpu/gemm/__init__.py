"""Products of matrices and contractions: packed panels and register tiles."""
