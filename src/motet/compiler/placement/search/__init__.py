"""Which task goes where and when: the search behind automatic placement, free of MLIR."""
