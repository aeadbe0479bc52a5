"""What back ends that emit LLVM IR share."""
