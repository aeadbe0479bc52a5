"""A device for Motet whose kernels run in separate processes."""
