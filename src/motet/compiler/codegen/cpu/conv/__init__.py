"""Convolutions: on images read in place, on copied image rows, and depthwise."""
