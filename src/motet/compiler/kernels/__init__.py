"""What a kernel is, read once for every back end. Imports neither LLVM nor Triton."""
