"""`trimtab lab`: which corrections survive, shown while it goes on."""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from trimtab.cli import show
from trimtab.cli.progress import LabProgress
from trimtab.cli.show import write_file
from trimtab.errors import ConfigError, RecordError, TrimtabError
from trimtab.installed import check_training

if TYPE_CHECKING:
    from trimtab.lab.results import LabResults

DEFAULT = "run"


class LabCommands(TyperGroup):
    """`trimtab lab …` is `trimtab lab run …`, `trimtab lab --decide …` is `trimtab lab decide …`; so with --claims."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The arguments, led by the name of a command."""
        for option in ("--decide", "--claims"):
            if option in args:
                return super().parse_args(ctx, [option[2:], *(each for each in args if each != option)])
        named = bool(args) and (args[0] in self.commands or args[0] in ("-h", "--help"))
        return super().parse_args(ctx, args if named else [DEFAULT, *args])


lab = typer.Typer(cls=LabCommands, add_completion=False, rich_markup_mode=None)


@lab.callback()
def lab_group() -> None:
    """Run the same training for many corrections and say which survive.

    `trimtab lab [key=value]…` is `trimtab lab run`: see `trimtab lab run --help`. `trimtab lab --decide` settles claims, and
    `trimtab lab --claims` prints what is known of them.
    """


Scenarios = Annotated[
    list[str] | None,
    typer.Option(
        "--scenario",
        metavar="NAME|FILE.yaml",
        help="stale, quantized, both, stale-1, stale-4, fp8, fp8-kv, vllm-bf16, or one of yours; repeatable. Default: the first three. "
        "Uncorrected, the on-policy control is always "
        "run; named here, it is run with every correction.",
    ),
]
Corrections = Annotated[
    list[str] | None,
    typer.Option(
        "--correction",
        metavar="NAME[(k=v,…)]|FILE.yaml|FRAMEWORK:FILE",
        help="A preset, a file of ours, or one of a framework's; repeatable. Default: a broad choice of presets.",
    ),
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[key=value]…", help="Training settings of every cell (learner.lr=3e-4).")
]


@lab.command(
    DEFAULT,
    epilog="""Examples:

\b
  trimtab lab --quick
  trimtab lab --full --scenario stale --correction off --correction "geo-rs(lower=0.9,upper=1.1)"
  trimtab lab --correction areal:my.yaml --correction k2-rs learner.lr=3e-4""",
)
def lab_run(
    overrides: Overrides = None,
    scenario: Scenarios = None,
    correction: Corrections = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Seeds 0 to N − 1, each with a warm start of its own; 3 or more.")
    ] = 3,
    quick: Annotated[bool, typer.Option("--quick", help="160 steps: separates the clear cases. The default.")] = False,
    full: Annotated[bool, typer.Option("--full", help="400 steps: needed before anything is called healthy.")] = False,
    steps: Annotated[int | None, typer.Option(min=1, help="A number of steps of your own.")] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Cells at a time, one thread each. Default: one per core.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Default: labs/quick, labs/full or labs/N-steps. What is already there is not repeated.",
        ),
    ] = None,
) -> None:
    """Run corrections × scenarios × seeds and print one verdict per cell.

    Each cell is `trimtab train` in lockstep: deterministic, staleness exact. The on-policy control is always run. Ctrl-C stops;
    the same command continues where it stopped. Leaves lab.json, lab.html and lab.md in DIR.
    """
    check_training()
    from trimtab.lab.candidate import parse_candidates
    from trimtab.lab.lab import LabPlan, run_lab
    from trimtab.lab.scenario import DEFAULT_SCENARIOS, base_settings
    from trimtab.lab.scenario import scenario as scenario_of
    from trimtab.lab.verdict import FULL, QUICK

    if quick and full:
        raise ConfigError("lab needs one of --quick and --full, got both. Choose one, or give --steps.")
    count = steps or (FULL if full else QUICK)
    named = scenario or DEFAULT_SCENARIOS
    plan = LabPlan(
        [scenario_of(each) for each in dict.fromkeys(named)],
        parse_candidates(correction or ()),
        list(range(seeds)),
        count,
        base_settings(overrides or ()),
    )
    path = out or Path("labs") / {QUICK: "quick", FULL: "full"}.get(count, f"{count}-steps")
    try:
        with LabProgress() as display:
            results = run_lab(plan, path, jobs=jobs, display=display)
    except KeyboardInterrupt:
        show.note(f"Interrupted. Finished work is kept in {path}; run the same command again to continue.")
        raise
    print_tables(results)
    show.put(*(str(each) for each in [path / "lab.json", *_write_pages(results, path)]))


def print_tables(results: LabResults) -> None:
    """The tables and the remarks."""
    from trimtab.lab.table import HEAD, correction_rows, equal_rows, remarks, row_texts

    for name, meaning in results.scenarios.items():
        if results.of(name):
            show.put("", show.heading(f"{name}: {meaning}"))
            show.put(
                show.table([each.upper() for each in HEAD], [row_texts(row) for row in correction_rows(results, name)])
            )
            show.put(*filter(None, [equal_rows(results, name)]))
    show.put("", *remarks(results), "")


def _write_pages(results: LabResults, folder: Path) -> list[Path]:
    """lab.html and lab.md beside lab.json."""
    from trimtab.lab.markdown import readme_text
    from trimtab.lab.page import lab_html
    from trimtab.report.write import write_page

    write_page(folder / "lab.html", lab_html(results, f"trimtab lab · {folder.resolve().name}"))
    write_page(folder / "lab.md", readme_text(results))
    return [folder / "lab.html", folder / "lab.md"]


@lab.command(
    "report",
    epilog="""Examples:

\b
  trimtab lab report labs/full
  trimtab lab report labs/full --markdown tables.md""",
)
def lab_report(
    path: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A lab's folder, finished or not; or a lab.json: printed only."),
    ],
    markdown: Annotated[
        Path | None,
        typer.Option(
            "--markdown", metavar="FILE.md", help="Also a whole page, with figures beside it and the claims it tests."
        ),
    ] = None,
) -> None:
    """Print the tables of a lab again and rewrite its pages, from lab.json alone."""
    from trimtab.lab.markdown import write_lab_page
    from trimtab.lab.results import read_results

    results = read_results(path)
    with sound_numbers(path):
        results = results.with_verdicts()
        print_tables(results)
        pages = _write_pages(results, path) if path.is_dir() else []
        pages += write_lab_page(results, markdown) if markdown else []
    show.put(*map(str, pages))


@contextmanager
def sound_numbers(*paths: Path) -> Generator[None]:
    """A lab.json can hold numbers that no lab has: what breaks on them is said of the file."""
    try:
        yield
    except TrimtabError:
        raise
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        named = " and ".join(map(str, paths))
        raise RecordError(
            f"{named} needs numbers as a lab writes them, got others: {type(error).__name__}: {error}."
        ) from error


@lab.command(
    "thresholds",
    epilog="""Examples:

\b
  trimtab lab thresholds
  trimtab lab thresholds --scenario quantized --correction geo-rs --correction "geo-rs(upper=2,lower=null)" """,
)
def lab_thresholds(
    overrides: Overrides = None,
    scenario: Scenarios = None,
    correction: Corrections = None,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds 0 to N − 1.")] = 3,
    jobs: Annotated[int | None, typer.Option(min=1, help="Seeds at a time. Default: one per core.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE.json", help="Also write whole curves, for programs to read."),
    ] = None,
) -> None:
    """Say what each gate keeps on the first batches, and which threshold would keep 99, 90 and 50 %.

    A gate that keeps everything does nothing; one that keeps wrong answers more often than right ones only pushes down.
    """
    check_training()
    from trimtab.lab.candidate import parse_candidates
    from trimtab.lab.lab import cores
    from trimtab.lab.scenario import base_settings
    from trimtab.lab.scenario import scenario as scenario_of
    from trimtab.lab.thresholds import HEAD, scan_texts, scans, scans_json

    base, given = base_settings(overrides or ()), parse_candidates(correction or ())
    found: dict[str, Any] = {}
    for name in dict.fromkeys(scenario or ["stale", "quantized"]):
        chosen = scenario_of(name)
        scanned = scans(chosen, given, list(range(seeds)), base, jobs or cores())
        found[chosen.name] = scans_json(scanned)
        show.put("", show.heading(f"{chosen.name}: {chosen.meaning}"))
        show.put(show.table([each.upper() for each in HEAD], [scan_texts(each) for each in scanned]))
    show.put(
        "",
        "t is the bound in the form of the gate: with two sides of a ratio, [1/t, t]. Shares are of tokens, by seed.",
    )
    if output is not None:
        write_file(output, json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
