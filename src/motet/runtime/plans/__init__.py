"""Plans over several devices: recorded once for given extents, submitted step by step in every call."""
