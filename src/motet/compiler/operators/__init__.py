"""What operators are, on tensors of MLIR with known or dynamic extents; front ends read formats into them."""
