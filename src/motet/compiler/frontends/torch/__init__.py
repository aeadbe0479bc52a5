"""Programs in the dialect `torch`: what torch.export makes, lowered to linalg."""
