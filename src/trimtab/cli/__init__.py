"""The command line: argv to one call each. Loads no torch."""

from __future__ import annotations

import signal
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `trimtab` with these arguments (the process's own where left out) and exit."""
    from trimtab.cli.brief import briefly  # here, so that importing trimtab.cli costs nothing

    with briefly():
        from trimtab.cli.app import app

    try:
        app(args=None if arguments is None else list(arguments), prog_name="trimtab")
    except KeyboardInterrupt:  # one more, while the first was being answered
        raise SystemExit(130) from None
    except SystemExit as ended:
        if (
            isinstance(ended.code, int) and ended.code > 128
        ):  # it ends because it was asked to: asking again adds nothing
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise
