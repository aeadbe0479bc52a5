"""A wide table: operators and networks that the compiler was not written for, next to its peers."""
