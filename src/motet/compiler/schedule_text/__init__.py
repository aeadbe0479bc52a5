"""Schedules as text and in attributes of programs: parsed for a kernel, and written in the same form."""
