"""Shared by back ends that emit LLVM IR."""
