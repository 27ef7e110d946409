"""`trimtab schema`: what a file of settings may hold, for editors and tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from trimtab.cli import show
from trimtab.cli.show import write_file
from trimtab.config.correction import Correction


def schema(
    of: Annotated[
        Literal["correction", "train"], typer.Argument(help="What to describe: a correction, or a training run.")
    ] = "correction",
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write here instead of to stdout.")
    ] = None,
) -> None:
    """Print the JSON schema of a correction or a run.

    For completion and checking in editors, and for tools that write corrections.
    """
    from trimtab.config.training import Train

    described = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **(Correction if of == "correction" else Train).model_json_schema(),
    }
    text = json.dumps(described, indent=2, ensure_ascii=False) + "\n"
    if output is None:
        show.put_raw(text)
    else:
        write_file(output, text)
