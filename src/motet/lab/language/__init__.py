"""Schedules as text: parsed for a kernel, and written in the form in which they are parsed."""

from motet.lab.language.formatting import format_schedule, schedule_mapping
from motet.lab.language.parsing import parse_schedule

__all__ = ["format_schedule", "parse_schedule", "schedule_mapping"]
