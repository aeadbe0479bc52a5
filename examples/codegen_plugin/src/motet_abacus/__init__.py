"""A code generator that writes C, and its device."""
