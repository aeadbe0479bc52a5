"""The lab: schedules as a language, measured, searched, kept and explained."""
