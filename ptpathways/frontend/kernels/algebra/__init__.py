"""Operations on tensors as a whole: matrices, Fourier transforms, reductions, ranges and random numbers.

Also derivatives of functions that PyTorch/XLA has without a gradient, or with a tangent of zero.
"""
