"""A device for Motet whose kernels run in processes of their own."""
