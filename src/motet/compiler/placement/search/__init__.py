"""The search behind automatic placement: the place and time of each task. Free of MLIR."""
