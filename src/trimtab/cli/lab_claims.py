"""`trimtab lab --claims`, `--decide` and `lab signs`: claims about corrections, what the seeds say, and what comes before a fall."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli import show
from trimtab.cli.lab import Overrides, lab, sound_numbers
from trimtab.cli.progress import LabProgress
from trimtab.errors import RecordError
from trimtab.installed import check_training

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.lab.evidence.claim import Claim
    from trimtab.lab.evidence.decide import ClaimFinding, ClaimPlan

Claims = Annotated[
    list[str] | None,
    typer.Option(
        "--claim",
        metavar="ID|FILE.yaml",
        help="A claim by its id, or a file with claims of your own; repeatable. Default: all of ours.",
    ),
]
Steps = Annotated[int | None, typer.Option(min=1, help="Steps of every cell. Default: what its task says, else 400.")]
Out = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="A folder per task; what is already there is not repeated.")
]
FOLDER = Path("labs") / "claims"


@lab.command(
    "claims",
    epilog="""Examples:

\b
  trimtab lab --claims
  trimtab lab --claims --claim k3-rs-beats-off""",
)
def lab_claims(overrides: Overrides = None, claim: Claims = None, steps: Steps = None, out: Out = FOLDER) -> None:
    """Print the claims, who makes them, and what the cells in DIR say of each. Runs nothing.

    In a clone the cells that its docs keep count too.
    """
    from trimtab.lab.evidence.decide import claim_findings, kept_folder

    plan, kept = _plan(claim, steps, overrides), kept_folder()
    with sound_numbers(out):
        findings = claim_findings(plan, out, kept=kept)
    for each in findings if claim else ():
        _print_claim(each)
    _print_table(plan, findings)
    if kept is not None:
        show.put(f"The cells that {kept} keeps count here.", "")


@lab.command(
    "decide",
    epilog="""Examples:

\b
  trimtab lab --decide --claim k3-rs-beats-off
  trimtab lab --decide --budget 2h
  trimtab lab --decide --claim mine.yaml --jobs 1""",
)
def lab_decide(
    overrides: Overrides = None,
    claim: Claims = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="2h|90m", help="Start no cell after this much time. Default: continue until nothing is open."
        ),
    ] = None,
    steps: Steps = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Cells at a time, one thread each. Default: one per core.")
    ] = None,
    out: Out = FOLDER,
) -> None:
    """Add seeds to the claims that are open until they are decided or the budget is spent.

    Both arms of a claim run on the same seeds, warm start and prompts; what they recorded of it is compared. The data are looked at
    with 8, 12, 16, 24 and 32 seeds. Ctrl-C stops; the same command continues. Leaves a lab.json per task, claims.html and claims.md.
    """
    check_training()
    from trimtab.lab.evidence.decide import budget_seconds, decide_claims

    plan = _plan(claim, steps, overrides)
    seconds = None if budget is None else budget_seconds(budget)
    try:
        with LabProgress() as display:
            findings = decide_claims(plan, out, jobs=jobs, budget=seconds, display=display)
    except KeyboardInterrupt:
        show.note(f"Interrupted. Finished work is kept in {out}; run the same command again to continue.")
        raise
    for each in findings:
        if each.decision.seeds:
            _print_claim(each)
    _print_table(plan, findings)
    show.put(*map(str, _write_pages(plan, findings, out)))


def _plan(named: Sequence[str] | None, steps: int | None, overrides: Sequence[str] | None) -> ClaimPlan:
    from trimtab.lab.evidence.claim import chosen_claims
    from trimtab.lab.evidence.decide import ClaimPlan

    return ClaimPlan(chosen_claims(named or ()), steps, tuple(overrides or ()))


def _print_claim(finding: ClaimFinding) -> None:
    from trimtab.lab.evidence.pages import beside, claim_sentence, interval_text

    claim = finding.claim
    show.put("", show.heading(f"{claim.id}: {claim.text}"), f"  {claim.source}", f"  {claim_sentence(claim)}")
    if finding.decision.seeds > 1:
        show.put(f"  difference {interval_text(finding.decision.difference)}, {finding.decision.seeds} seeds")
    show.put(*(f"  {each}" for each in beside(finding)))


def _print_table(plan: ClaimPlan, findings: Sequence[ClaimFinding]) -> None:
    from trimtab.lab.evidence.decide import planned_cells
    from trimtab.lab.evidence.pages import CLAIM_HEAD, METHOD, verdict_rows
    from trimtab.lab.statistics.decision import LOOKS
    from trimtab.lab.table import CAUTION
    from trimtab.report.html import plural

    show.put("", show.table([each.upper() for each in CLAIM_HEAD], verdict_rows(findings)))
    unrun = [each.claim for each in findings if each.is_open and not each.decision.seeds]
    if unrun:
        count = planned_cells(plan, unrun, LOOKS[0])
        show.put(
            "",
            f"Without a run yet: {plural(len(unrun), 'claim')}. The first look takes {count} cells of {_steps(plan, unrun)} steps.",
        )
    show.put("", METHOD, CAUTION, "")


def _steps(plan: ClaimPlan, claims: Sequence[Claim]) -> str:
    """How long their runs are: `160, 250 or 400`."""
    *others, last = map(str, sorted({plan.steps_of(each.task) for each in claims}))
    return f"{', '.join(others)} or {last}" if others else last


def _write_pages(plan: ClaimPlan, findings: Sequence[ClaimFinding], folder: Path) -> list[Path]:
    from trimtab.lab.evidence.pages import claims_html, claims_markdown
    from trimtab.report.write import write_page

    about = f"{len(findings)} claims, {_steps(plan, [each.claim for each in findings])} steps a run."
    write_page(folder / "claims.html", claims_html(findings, about))
    write_page(folder / "claims.md", f"# Claims\n\n{claims_markdown(findings, about)}")
    return [folder / "claims.html", folder / "claims.md"]


@lab.command(
    "signs",
    epilog="""Examples:

\b
  trimtab lab signs labs/full
  trimtab lab signs docs/lab.json docs/lab-kept.json""",
)
def lab_signs(
    paths: Annotated[list[Path], typer.Argument(metavar="DIR|LAB.json…", help="Labs whose cells are taken together.")],
    write: Annotated[
        Path | None,
        typer.Option(
            "--write", metavar="FILE.json", help="Also write those that predict, as the run report reads them."
        ),
    ] = None,
) -> None:
    """Say which logged number warns of a fall, how many steps ahead, and how often it is wrong.

    A fall is the first evaluation under half of the run's best so far or under its start. Directions and thresholds are chosen on even
    seeds, with one false alarm in ten runs that stood; every figure is that of odd seeds. Runs that are the same count once.
    """
    from trimtab.lab.early_warning import HORIZON, WARNING_HEAD, early_warnings, warning_texts, write_predictors
    from trimtab.lab.results import read_results

    entries = [entry for path in paths for entry in read_results(path).entries]
    with sound_numbers(*paths):
        found = early_warnings(entries)
    if not found:
        raise RecordError(
            "lab signs needs falls and runs that stood in even and in odd seeds, got too few. Give it more labs or more seeds."
        )
    show.put(show.table([each.upper() for each in WARNING_HEAD], [warning_texts(each) for each in found]))
    show.put("", f"The area asks whether a fall shows within {HORIZON} steps; its 95 % interval draws whole runs.")
    if write is not None:
        write_predictors(write, found)
        show.put(str(write))
