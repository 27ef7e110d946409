"""Whether the framework of a plug-in is here, in a version the plug-in was tried with."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec

from trimtab.errors import FrameworkError


def require(framework: str, distribution: str, *tried: str) -> None:
    """An error that names the versions tried, unless one of them is installed.

    Hooks are methods and calls of one release: in another they may take and mean something else without an error.
    """
    remedy = f"pip install {distribution}=={tried[-1]}."
    tried_ones = f"The plug-in was tried with {', '.join(tried)}"
    try:
        version = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        raise FrameworkError(
            f"trimtab's plug-in needs {framework}, got no package {distribution}. {tried_ones}: {remedy}"
        ) from None
    if version.partition("+")[0] not in tried:
        raise FrameworkError(
            f"trimtab's plug-in needs {framework} {' or '.join(tried)}, got {version}. {tried_ones}, and hooks change between "
            f"releases: {remedy}"
        )


def require_module(framework: str, module: str, tried: str) -> None:
    """An error that names the revision tried, unless the module is here: for frameworks that no registry carries."""
    try:
        found = find_spec(module) is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        raise FrameworkError(
            f"trimtab's plug-in needs {framework}, got no module {module}. The plug-in was tried with revision {tried}: install that."
        )
