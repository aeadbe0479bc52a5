"""Makes the LLVM IR of kernels the IR that LLVM's code generator for SPIR-V takes: `narrow.py` is the entry."""
