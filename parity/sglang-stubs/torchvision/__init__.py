"""In the place of torchvision, which has no build for this torch on a CPU: names that SGLang imports for models that see."""

import enum
import sys
import types

__version__ = "0.28.0"


class InterpolationMode(enum.Enum):
    """As torchvision names them."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


class Transforms(types.ModuleType):
    """A module whose every other name is an empty class."""

    InterpolationMode = InterpolationMode

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def _module(name):
    module = sys.modules[f"{__name__}.{name}"] = Transforms(f"{__name__}.{name}")
    module.__path__ = []
    return module


io, transforms = _module("io"), _module("transforms")
transforms.functional = _module("transforms.functional")
transforms.v2 = _module("transforms.v2")
transforms.v2.functional = _module("transforms.v2.functional")
