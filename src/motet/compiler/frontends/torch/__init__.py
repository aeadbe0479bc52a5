"""Programs in the dialect `torch`, as exported by torch.export: lowers them to linalg."""
