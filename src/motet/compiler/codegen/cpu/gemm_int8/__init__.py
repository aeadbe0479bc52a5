"""Products of 8-bit integers with the CPU's dot-product instructions."""
