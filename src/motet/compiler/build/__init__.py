"""The steps of building an artifact: partitioning, signatures, code for each target, parameters."""
