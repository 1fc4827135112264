"""PyTorch training loops on slices: cuts of the lazy trace, reads, loaders, optimizers and loaded state."""
