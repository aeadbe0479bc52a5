"""Nothing: see the package."""
