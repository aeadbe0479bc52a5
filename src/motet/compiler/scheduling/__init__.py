"""Scheduling: shapes, memory, and the order of commands."""
