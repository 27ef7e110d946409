"""Tensors in, tensors out: layouts, ratios, divergences, gates, weights, and the correction made of them."""
