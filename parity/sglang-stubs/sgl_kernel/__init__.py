"""In the place of SGLang's compiled kernels, which have no build for a CPU: every name is there and none can be called.

SGLang imports them while it starts, whatever it runs on. With the backends `torch_native` and `pytorch` it calls none of them.
"""

import importlib.abc
import importlib.machinery
import sys
import types

__path__ = []


class Kernel:
    """A kernel that is not there."""

    def __init__(self, name):
        self.name = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Kernel(f"{self.name}.{name}")

    def __call__(self, *arguments, **named):
        raise NotImplementedError(f"{self.name} is a compiled kernel of SGLang, and there is none on this CPU.")


class Kernels(types.ModuleType):
    """A module of such kernels."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Kernel(f"{self.__name__}.{name}")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of the package."""

    def find_spec(self, name, path=None, target=None):
        inside = name.startswith(f"{__name__}.")
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if inside else None

    def create_module(self, spec):
        return Kernels(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.append(Finder())


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Kernel(f"{__name__}.{name}")
