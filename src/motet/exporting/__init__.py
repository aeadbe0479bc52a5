"""Programs to be built into other things: a function of an artifact without Motet's runtime.

`static.py` makes all that a call decides once and for all; each format has a file of its own.
"""
