"""The families of models: one module for each."""
