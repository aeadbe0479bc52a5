"""Matrix products and contractions: packed panels and register tiles."""
