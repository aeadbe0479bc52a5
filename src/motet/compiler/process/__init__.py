"""Compiler processes: workers, the fork server, warm-up, and their lifetimes."""
