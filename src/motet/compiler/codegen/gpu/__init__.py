"""What the code generators for GPUs share."""
