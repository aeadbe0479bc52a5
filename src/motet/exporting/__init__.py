"""Exports functions of an artifact for use without Motet's runtime, such as in firmware.

`static.py` fixes everything that a call would decide; each output format has a module.
"""
