"""Row kernels and plain loops on GPUs."""
