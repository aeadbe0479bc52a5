"""Convolutions: read in place, copied, depthwise."""
