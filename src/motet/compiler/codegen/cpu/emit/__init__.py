"""What all kernel classes for CPUs emit with: builder, addresses, bodies, elementary functions."""
