"""What neural networks are made of and trained with: activations, normalisation, pooling, padding, resampling, packed
sequences and losses, and the optimizers and loss scales of a step."""
