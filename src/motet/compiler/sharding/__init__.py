"""Divides programs over the devices of a mesh: shardings are propagated, and operations repeated for each device."""
