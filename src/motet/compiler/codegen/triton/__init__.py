"""The code generator for GPUs: kernels as Triton programs, compiled ahead of time without a GPU."""
