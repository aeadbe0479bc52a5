"""Graphs of work: partial orders and their assignment to queues. Used by compiler and runtime."""
