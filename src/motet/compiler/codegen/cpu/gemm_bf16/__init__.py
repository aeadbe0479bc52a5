"""Products of bf16 numbers by the CPU's instructions for them."""
