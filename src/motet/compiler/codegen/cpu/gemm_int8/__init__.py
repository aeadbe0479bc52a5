"""Products of 8-bit integers by the processor's dot-product instructions."""
