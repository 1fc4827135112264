"""Which memory tensors have and what is written there: views, copies, operations in place, given results (``out=``).

Also elements that are chosen by indices, masks, slices or strides.
"""
