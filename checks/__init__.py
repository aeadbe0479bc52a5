"""Checks of the project itself: its structure, its list of modules, and equality of compiled code."""
