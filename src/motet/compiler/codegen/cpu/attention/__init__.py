"""Attention: two products with a softmax between them, by blocks of keys."""
