"""Tables of what code generators need to know of processors and GPUs."""
