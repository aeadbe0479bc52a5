"""The code generator for CPUs: LLVM IR, one package for each kind of kernel."""
