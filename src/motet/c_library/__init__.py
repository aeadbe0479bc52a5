"""The library for programs in C, and how it is built: see docs/c_api.md."""
