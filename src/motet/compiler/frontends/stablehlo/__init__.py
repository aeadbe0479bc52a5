"""StableHLO: rewrites what upstream's lowering refuses or lowers wrongly to other operations."""
