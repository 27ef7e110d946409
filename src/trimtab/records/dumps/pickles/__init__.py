"""`.pt` and `.pkl` files read as data: nothing that stands in them is imported, called or run.

A pickle is a program that names functions and has them called. Here no name leads to a function of that name: the few names
of the `allow_list` have stand-ins that keep what they are given, every other name is refused, and so is every operation that could
reach further (attributes of objects, the registry of extensions).
"""

from trimtab.records.dumps.pickles.archive import torch_content
from trimtab.records.dumps.pickles.unpickler import pickle_content

__all__ = ["pickle_content", "torch_content"]
