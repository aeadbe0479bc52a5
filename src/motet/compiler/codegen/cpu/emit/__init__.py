"""Emission shared by all kernel classes for CPUs: builder, addresses, bodies, elementary functions."""
