"""Passes over programs: the base classes, the registry of passes by name, and their orders."""
