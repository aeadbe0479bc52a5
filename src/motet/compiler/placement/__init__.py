"""Passes over devices: names, affinities, transfers, regions, and placement by cost."""
