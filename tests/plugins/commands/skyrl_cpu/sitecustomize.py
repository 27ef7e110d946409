"""Below Python 3.12, pydantic refuses the TypedDict that SkyRL 0.3.0 takes: its first import stops there, on any machine."""

import sys

if sys.version_info < (3, 12):
    import typing

    import typing_extensions

    typing.TypedDict = typing_extensions.TypedDict
