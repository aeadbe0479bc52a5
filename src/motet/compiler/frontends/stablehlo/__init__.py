"""StableHLO: what upstream's lowering refuses or gets wrong, written with other operations."""
