"""Search strategies: each proposes points of a space, and learns their times."""
