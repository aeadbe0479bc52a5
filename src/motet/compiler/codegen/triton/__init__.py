"""The back end for GPUs: compiles kernels as Triton programs, ahead of time and without a GPU."""
