"""Passes over devices: names, affinities, transfers, regions, and automatic placement by cost."""
