"""Products of bytes and of bf16 numbers for CPUs: matrix products and convolutions."""
