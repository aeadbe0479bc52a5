"""Microcontrollers: an agent in flash, kernels in memory, reached through a debugger's stub or a serial line."""
