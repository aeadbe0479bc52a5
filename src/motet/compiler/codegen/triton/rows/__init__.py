"""Rows and plain loops on GPUs."""
