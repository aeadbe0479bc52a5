"""Checks of the project itself: its structure, and whether a change leaves compiled code as it was."""
