"""Prints the LLVM IR of kernels for processors as OpenCL C, for platforms that take no SPIR-V."""
