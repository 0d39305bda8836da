"""Tensors in, tensors out; plain torch."""
