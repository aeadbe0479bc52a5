"""Scheduling: shapes, layouts, memory and the order of commands."""
