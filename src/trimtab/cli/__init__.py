"""The command line: argv to one call each. Loads no torch."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `trimtab` with these arguments (the process's own where left out) and exit."""
    from trimtab.cli.brief import briefly  # here, so that importing trimtab.cli costs nothing

    with briefly():
        from trimtab.cli.app import app

    app(args=None if arguments is None else list(arguments), prog_name="trimtab")
