"""Passes over programs: what a pass is, the registry that knows all of them by name, and their orders."""
