"""The compiler: frontends, placement, passes, kernels, code generators, scheduling."""
