"""The driver for OpenCL platforms."""
