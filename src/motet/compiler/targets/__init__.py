"""Tables of processors and GPUs, with what code generators need to know about them."""
