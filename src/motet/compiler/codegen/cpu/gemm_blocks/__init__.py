"""Products by constant weights of 4 or 8 bits, which are read as stored."""
