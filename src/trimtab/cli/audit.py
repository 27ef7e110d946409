"""`trimtab audit` and `trimtab parity`: a saved batch judged, and two scorings of the same tokens held against each other."""

from __future__ import annotations

import json
import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from trimtab.cli import show
from trimtab.cli.progress import LiveBar
from trimtab.cli.show import write_file
from trimtab.errors import ConfigError, InputError, RecordError

if TYPE_CHECKING:
    from trimtab.audit.audit import Audit
    from trimtab.audit.causes.sampling import DrawnTemperature
    from trimtab.audit.parity import ParityResult
    from trimtab.audit.scoring import ModelScorer
    from trimtab.records.saved import SavedBatch

VERDICT_STYLES = {"found": "bold red", "suspected": "yellow", "ruled out": "green", "inconclusive": "dim"}
Framework = Annotated[
    str | None,
    typer.Option("--from", metavar="NAME", help="The framework that wrote the files. Recognised if you leave it out."),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns", metavar="OURS=THEIRS,…", help="Any other file: its columns, as behavior=q_logp,proximal=p_logp."
    ),
]


def audit(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH…", help="Files or folders that a training run saved.")],
    framework: Framework = None,
    columns: Columns = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            "--rule", metavar="RULE", help="Also try this rule: NAME(k=v), FILE.yaml or verl:FILE. Repeatable."
        ),
    ] = None,
    model: Annotated[
        list[Path] | None,
        typer.Option(
            "--model", metavar="DIR", help="Compute the missing side with this model; given twice: two scorings."
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Also write the audit as one offline HTML page.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown instead of tables.")] = False,
    fail_on: Annotated[
        Literal["found", "suspected"] | None,
        typer.Option("--fail-on", help="Exit with 1 if a cause was found, or at least suspected."),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Follow one folder that a run writes to, until interrupted.")
    ] = False,
) -> None:
    """Find out why sampler and trainer disagree on a saved batch, and what each correction would do.

    Reads what NeMo-RL, prime-rl, slime, miles, SkyRL, verl, open-instruct, verifiers and our own runs save, and any parquet, JSONL,
    npz or safetensors by its columns. Nothing in a file is run. Causes are tested in order, each on the gap that those above leave.

    Exit codes: 0 judged. 1 a cause, under --fail-on. 2 an error.
    """
    if as_json and markdown:
        raise ConfigError("audit needs one of --json and --markdown, got both. Choose one.")
    with _enough_memory(paths):
        from trimtab.dialects.candidate import parse_candidate

        rules = [parse_candidate(each) for each in rule or ()]
        named, scorers = _columns(columns), scorers_of(model or [])
        if watch:
            _watch(paths, framework, named, rules, scorers, html)
            return
        from trimtab.records.dumps import load

        judged = _judge(load(paths, framework, named), rules, scorers)
        if html is not None:  # before the tables: a reader of those may have seen enough
            _write_html(judged, html)
        _put(judged, as_json, markdown)
        if fail_on and (judged.with_verdict("found") or (fail_on == "suspected" and judged.with_verdict("suspected"))):
            raise typer.Exit(1)


@contextmanager
def _enough_memory(paths: Sequence[Path]) -> Generator[None]:
    """One sentence where the batch fits into memory and what is worked out of it does not."""
    try:
        yield
    except MemoryError:
        named = ", ".join(map(str, paths[:3]))
        raise RecordError(
            f"{named} needs more memory for the audit than is free here. Audit fewer files or sequences at a time, or where more memory "
            "is free."
        ) from None


def _columns(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    pairs = [part.partition("=") for part in text.split(",") if part.strip()]
    for ours, sign, theirs in pairs:
        if not sign or not ours.strip() or not theirs.strip():
            raise ConfigError(
                f"--columns needs OURS=THEIRS, got {ours + sign + theirs!r}. As in behavior=q_logp,proximal=p_logp."
            )
    return {ours.strip(): theirs.strip() for ours, _, theirs in pairs}


def _judge(batch: SavedBatch, rules: Sequence[Any], scorers: Sequence[ModelScorer]) -> Audit:
    from trimtab.audit.audit import audit_batch

    batch, second, drawn = with_scores(batch, scorers)
    return audit_batch(batch, rules, second, drawn)


def _put(judged: Audit, as_json: bool, markdown: bool) -> None:
    from trimtab.audit.tables import json_of, markdown_of

    if as_json:
        show.put_raw(json.dumps(json_of(judged), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    elif markdown:
        show.put_raw(markdown_of(judged))
    else:
        _put_tables(judged)


def _put_tables(judged: Audit) -> None:
    from trimtab.audit.tables import CAUSE_HEADS, cause_rows, facts, rule_table

    show.put(show.table(("", ""), facts(judged)))
    rows = [
        (Text(name), Text(verdict, style=VERDICT_STYLES[verdict]), Text(share), Text(evidence))
        for name, verdict, share, evidence in cause_rows(judged)
    ]
    show.put("", show.heading("Causes, each tested on the gap that those above leave"))
    show.put(show.table([each.upper() for each in CAUSE_HEADS], rows))
    show.put("", show.heading("What each rule would do"))
    head, rules = rule_table(judged, few=show.is_narrow())
    show.put(show.table([each.upper() for each in head], [[Text(cell) for cell in row] for row in rules]))
    show.put("", Text(f"{judged.advice.title}. {' '.join(judged.advice.reasons)}", style="bold"))
    for note in (*judged.batch.origin.notes, *judged.rules.left_out):
        show.note(note)


def _write_html(judged: Audit, html: Path) -> None:
    from trimtab.audit.page import audit_html

    write_file(html, audit_html(judged))
    show.note(f"The page is {html}.")


def _watch(
    paths: Sequence[Path],
    framework: str | None,
    columns: dict[str, str] | None,
    rules: Sequence[Any],
    scorers: Sequence[ModelScorer],
    html: Path | None,
) -> None:
    from trimtab.records.dumps import follow

    if len(paths) != 1:
        raise ConfigError(f"--watch needs one folder, got {len(paths)} paths. Give the folder that the run writes to.")
    for batch in follow(paths[0], framework, columns, tell=show.note):
        try:
            judged = _judge(batch, rules, scorers)
        except InputError as error:  # one batch that cannot be judged is no reason to stop watching
            show.note(str(error))
            continue
        found = ", ".join(step.cause.title.lower() for step in judged.with_verdict("found")) or "no cause found"
        steps = "" if batch.step is None or not len(batch.step) else f"step {int(batch.step.max())}: "
        show.put(f"{steps}{len(batch):,} sequences, k3 {judged.gap.k3:.2g}: {found}. {judged.advice.title}.")
        if html is not None:
            _write_html(judged, html)


def parity(
    first: Annotated[Path, typer.Argument(metavar="A", help="A file with log-probs.")],
    second: Annotated[
        Path, typer.Argument(metavar="B", help="Another scoring of the same tokens: a file, or a model's folder.")
    ],
    framework: Framework = None,
    columns: Columns = None,
    max_k3: Annotated[float, typer.Option("--max-k3", min=0.0, help="Largest mean k3 that passes.")] = 1e-3,
    max_outside: Annotated[
        float,
        typer.Option(
            "--max-outside", min=0.0, max=1.0, help="Largest share of tokens outside [0.9, 1.1], or on one side only."
        ),
    ] = 0.05,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare two scorings of the same tokens, as a check before the first step.

    Exit codes: 0 within both bounds. 1 outside one of them. 2 an error.
    """
    with _enough_memory([first, second]):
        found = _parity(first, second, framework, _columns(columns))
    passes = found.passes(max_k3, max_outside)
    if as_json:
        facts: dict[str, Any] = {name: None if math.isnan(value) else value for name, value in vars(found).items()}
        show.put_raw(json.dumps(facts | {"passes": passes, "max_k3": max_k3, "max_outside": max_outside}) + "\n")
    else:
        show.put(
            f"{'passed' if passes else 'FAILED'}: mean k3 {found.k3:.3g} (at most {max_k3:g}), {found.outside:.2%} outside [0.9, 1.1] (at "
            f"most {max_outside:.2%}), over {found.tokens:,} tokens; the worst |ℓ| is {found.worst:.3g}."
        )
        if found.unmatched:
            show.note(f"{found.unmatched:,} trained tokens have a log-prob on one side only; they count as outside.")
    if not passes:
        raise typer.Exit(1)


def _parity(first: Path, second: Path, framework: str | None, columns: dict[str, str] | None) -> ParityResult:
    """How two scorings of the same tokens compare; the second may be a model's folder."""
    from trimtab.audit.parity import check_same_tokens, parity_of, scores_of
    from trimtab.records.dumps import load

    one = load([first], framework, columns)
    if (second / "config.json").is_file():
        other = score(scorers_of([second])[0], one)[0]
    else:
        loaded = load([second], framework, columns)
        check_same_tokens(one, loaded)
        other = scores_of(loaded)
    return parity_of(scores_of(one), other, one.trained)


def scorers_of(folders: Sequence[Path]) -> list[ModelScorer]:
    """A scorer for each folder; none is loaded yet."""
    if len(folders) > 2:
        raise ConfigError(f"--model needs one folder or two, got {len(folders)}.")
    if not folders:
        return []
    from trimtab.audit.scoring import ModelScorer
    from trimtab.train.policy.warm_start import cache

    return [ModelScorer(folder, cache=cache() / "scores") for folder in folders]


def score(scorer: ModelScorer, batch: SavedBatch, temperatures: Sequence[float] = (1.0,)) -> Any:
    """Log-probs `[temperatures, tokens]` of the batch, with a bar; where it is interrupted, what was done is kept and said."""
    what = "" if len(temperatures) == 1 else f" at {len(temperatures)} temperatures"
    try:
        with LiveBar(f"Scoring with {scorer.folder.name}{what}", None) as bar:
            return scorer.log_probs_at(
                temperatures, batch, lambda done, total: bar.bar.update(bar.task, completed=done, total=total)
            )
    except KeyboardInterrupt:
        show.note("Scores so far are kept: run the same command again to continue.")
        raise


def with_scores(batch: SavedBatch, scorers: Sequence[ModelScorer]) -> tuple[SavedBatch, Any, DrawnTemperature | None]:
    """The batch with the side it lacks, a second scoring where there is one, and what the first model says of the temperature.

    One model is the side that is missing, or a second scoring where none is. Two are two scorings of the trainer; of a batch
    without behavior the second is that.
    """
    if not scorers:
        return batch, None, None
    import numpy as np

    from trimtab.audit.causes.sampling import GRID, PROBED_SEQUENCES, drawn_temperature
    from trimtab.records.saved import part_of

    some = np.arange(min(PROBED_SEQUENCES, len(batch)))
    scored = [score(scorers[0], batch)[0]]
    grid = score(scorers[0], part_of(batch, some), GRID)
    if len(scorers) == 2:
        scorers[0].release()  # one model in memory at a time
        scored.append(score(scorers[1], batch)[0])
        scorers[1].release()
    scored_batch, second = _place(batch, scored)
    return scored_batch, second, drawn_temperature(part_of(scored_batch, some), grid)


def _place(batch: SavedBatch, scored: Sequence[Any]) -> tuple[SavedBatch, Any]:
    if len(scored) == 2:
        if batch.behavior is None:
            return replace(batch, behavior=scored[1], proximal=scored[0]), None
        return replace(batch, proximal=scored[0]), scored[1]
    if batch.behavior is None:
        return replace(batch, behavior=scored[0]), None
    if batch.proximal is None and batch.current is None:
        return replace(batch, proximal=scored[0]), None
    return batch, scored[0]
