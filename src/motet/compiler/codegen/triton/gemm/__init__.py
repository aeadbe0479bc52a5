"""Matrix products and contractions on GPUs: their forms and cost models."""
