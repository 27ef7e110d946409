"""Responses with each token coloured by its ratio and struck through where it was rejected."""

# pyarrow carries no types.
# pyright: reportUnknownParameterType=false

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trimtab.report.html import escape_html, short_number
from trimtab.report.run import FIRST_STEP, Run
from trimtab.report.tokens import Tokens, bool_column, target

HEAD, TAIL = 500, 150
"""Tokens shown of a long response, from its start and from its end."""
MOST_TEXT = 4000
"""Characters shown of a prompt, or of a response that cannot be split into its tokens."""
STEPS = (0.05, 0.2, 0.5, 1.0, 2.0)
"""|ℓ| from which a token takes the next shade."""
LEGEND = ("1/7", "1/2.7", "1/1.6", "1/1.2", "1/1.05", "1", "1.05", "1.2", "1.6", "2.7", "7")


def shade(log_r: float | int | None) -> str:
    """The class of a token's colour: r0 at ratio 1, r1 to r5 above, r-1 to r-5 below, none where it is not known."""
    if log_r is None or not math.isfinite(log_r):
        return "none"
    level = int(np.searchsorted(STEPS, abs(log_r), side="right"))
    return f"r{'-' if log_r < 0 and level else ''}{level}"


def pieces(row: Mapping[str, Any], piece: Callable[[int], str] | None) -> list[str] | None:
    """The text of each token: from the tokenizer, or one character each where counts agree; None where neither works."""
    ids: Sequence[int] = row.get("tokens") or ()
    text = str(row.get("response") or "")
    if ids and piece is not None:
        return [piece(token) for token in ids]
    if len(ids) == len(text):
        return list(text)
    if len(ids) == len(text) + 1 and row.get("finish") == "stop":
        return [*text, "⟨stop⟩"]
    return None


def rollouts_html(run: Run, shown: Sequence[ChosenRollout]) -> tuple[str, list[dict[str, Any]]]:
    """The section's HTML, and the numbers of each token for the page's script."""
    if run.rollouts is None or not shown:
        return "", []
    rows = run.rollouts.take([choice.row for choice in shown]).to_pylist()
    parts: list[str] = []
    data: list[dict[str, Any]] = []
    phase = ""
    for choice, row in zip(shown, rows, strict=True):
        if choice.phase != phase:
            phase = choice.phase
            parts.append(f"{'</div>' if parts else ''}<h3>{escape_html(phase)}</h3><div class=cards>")
        shares = token_facts(row, target(run))
        parts.append(_card(choice, row, shares, len(data), pieces(row, run.piece)))
        data.append({"target": target(run), **shares})
    return "".join([*parts, "</div>"]), data


PER_TOKEN = ("tokens", "behavior", "raw", "proximal", "current", "weight", "advantage", "versions")


def token_facts(row: Mapping[str, Any], compared: str) -> dict[str, Any]:
    """The arrays of a row that the pointer can ask for, of the tokens shown."""
    count = len(row.get("tokens") or ())
    numbers = {name: [_round_value(value) for value in _per_token(row, name, count, None)] for name in PER_TOKEN}
    log_r = [
        None if high is None or low is None else _round_value(high - low)
        for high, low in zip(numbers[compared], numbers["behavior"], strict=True)
    ]
    flags = {name: [bool(value) for value in _per_token(row, name, count, True)] for name in ("mask", "kept")}
    # Of 1,000 tokens 0 to 499 and 850 to 999.
    visible = [place for place in range(count) if place < HEAD or place >= count - TAIL]
    arrays = {**numbers, "log_r": log_r, **flags}
    shown = {name: [values[place] for place in visible] for name, values in arrays.items()}
    return {"count": count, "version": row.get("version"), **shown, "at": visible}


def _per_token(row: Mapping[str, Any], name: str, count: int, absent: bool | None) -> Sequence[Any]:
    """A column of the row with one value per token; `absent` for each where it has none, or another number of them."""
    values: Sequence[Any] = row.get(name) or ()
    return values if len(values) == count else [absent] * count


def _round_value(value: float | int | None) -> float | int | None:
    return (
        None
        if value is None or not math.isfinite(value)
        else (value if isinstance(value, int) else float(f"{value:.4g}"))
    )


def _card(
    choice: ChosenRollout, row: Mapping[str, Any], facts: Mapping[str, Any], place: int, texts: list[str] | None
) -> str:
    right = bool(row.get("correct"))
    kept = sum(facts["kept"]) / max(1, sum(facts["mask"]))
    told = [
        f"step {int(row['step']) + FIRST_STEP}",
        f"group {row.get('group')}, sample {row.get('sample')}",
        f"reward {short_number(float(row.get('reward') or 0.0))}",
        _lengths(row, facts),
        f"kept {short_number(100 * kept)} %",
        f"age {row.get('staleness')}",
        f"ended by {row.get('finish')}",
    ]
    if row.get("failed"):
        told.append(f"verifier failed: {str(row['failed'])[:200]}")
    if facts["advantage"] and facts["advantage"][0] is not None:
        told.append(f"advantage {short_number(facts['advantage'][0])}")
    return (
        f'<article class="rollout"><header><b class="{"right" if right else "wrong"}">{"right" if right else "wrong"}</b> '
        f"<i>{escape_html(choice.why.partition(', ')[2])}</i> <span>{escape_html(' · '.join(told))}</span></header>"
        f'<pre class="prompt"><span class="who">{escape_html(_prompt_label(row))}</span>'
        f"{escape_html(_short(row.get('prompt')))}</pre>"
        f"{response_html(row, facts, place, texts)}</article>"
    )


def _prompt_label(row: Mapping[str, Any]) -> str:
    """The prompt's id, unless that is the prompt itself with the name of its task."""
    name, prompt = str(row.get("problem") or ""), str(row.get("prompt") or "")
    return "prompt" if prompt and name.endswith(prompt.strip()) else f"prompt {name}"


def _lengths(row: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """How many tokens there are, and how many of them no weights sampled and nothing trained: those of the environment."""
    count = facts["count"]
    flags = zip(_per_token(row, "versions", count, None), _per_token(row, "mask", count, True), strict=True)
    written = sum(version == -1 and not trained for version, trained in flags)
    return f"{count} tokens, {written} of them by the environment" if written else f"{count} tokens"


def _short(text: object) -> str:
    whole = "" if text is None else str(text)
    return whole if len(whole) <= MOST_TEXT else f"{whole[:MOST_TEXT]} … ({len(whole) - MOST_TEXT:,} more characters)"


def response_html(
    row: Mapping[str, Any], facts: Mapping[str, Any], place: int, texts: list[str] | None, *, bare: bool = False
) -> str:
    """The tokens of a row, shaded; the response as a whole before them where they have no text of their own, unless `bare`."""
    plain = ""
    if texts is None and not bare:
        plain = f'<pre class="plain"><span class="who">response</span>{escape_html(_short(row.get("response")))}</pre>'
    spans: list[str] = []
    for index, at in enumerate(facts["at"]):
        if index and at != facts["at"][index - 1] + 1:
            spans.append(f'<span class="gap"> … {at - facts["at"][index - 1] - 1:,} tokens … </span>')
        text = str(facts["tokens"][index]) if texts is None else texts[at]
        spans.append(f'<span class="{_classes(facts, index)}" data-t="{index}">{_visible(text)}</span>')
    who = "response" if texts is not None else "token ids"
    kind = "response" if texts is not None else "response ids"
    return f'{plain}<pre class="{kind}" data-r="{place}"><span class="who">{who}</span>{"".join(spans)}</pre>'


def _classes(facts: Mapping[str, Any], index: int) -> str:
    if not facts["mask"][index]:
        return "untrained"
    names = [shade(facts["log_r"][index])]
    if not facts["kept"][index]:
        names.append("rejected")
    elif facts["weight"][index] == 0:
        names.append("zeroed")
    return " ".join(names)


def _visible(text: str) -> str:
    """A token's text; line breaks are drawn, and still break the line."""
    return escape_html(text.replace("\r", "␍").replace("\t", "⇥\t").replace("\n", "⏎\n")) or "∅"


@dataclass(frozen=True)
class ChosenRollout:
    """A row of the rollout table and why it is shown."""

    row: int
    phase: str
    why: str


def choose_rollouts(run: Run, trained: Tokens | None) -> list[ChosenRollout]:
    """For each phase, of the right and of the wrong responses, one of usual mismatch and the one of largest."""
    table = run.rollouts
    if table is None or table.num_rows == 0:
        return []
    steps = table.column("step").to_numpy() + FIRST_STEP
    correct = bool_column(table, "correct")
    gap = row_mismatch(table, trained)
    shown: list[ChosenRollout] = []
    taken: set[int] = set()
    for phase, rows in phases(run, steps, gap).items():
        for label, right in (("right", True), ("wrong", False)):
            here = rows[correct[rows] == right]
            for why, row in _two(here, gap):
                if row not in taken:
                    taken.add(row)
                    shown.append(ChosenRollout(row, phase, f"{label}, {why}"))
    return shown


def phases(run: Run, steps: NDArray[np.int64], gap: NDArray[np.float64]) -> dict[str, NDArray[np.int64]]:
    """Rows of the first and the last recorded steps, and of the step with the farthest answer that was recorded."""
    known = np.unique(steps)
    tenth = max(1, len(known) // 10)
    worst = int(steps[int(np.nanargmax(gap))]) if np.isfinite(gap).any() else int(known[len(known) // 2])
    return {
        f"Start (steps {known[0]}–{known[tenth - 1]})": np.flatnonzero(steps <= known[tenth - 1]),
        f"The farthest answer recorded (step {worst}{_farther(run, known, worst)})": np.flatnonzero(steps == worst),
        f"End (steps {known[-tenth]}–{known[-1]})": np.flatnonzero(steps >= known[-tenth]),
    }


def _farther(run: Run, known: NDArray[np.int64], worst: int) -> str:
    """That the batches of another step were farther apart, whose answers were not recorded, or other ones were."""
    drift = run.series("drift/k3").finite
    if not len(drift):
        return ""
    most, step = float(drift.values.max()), int(drift.steps[int(np.argmax(drift.values))])
    if step == worst:
        return ""
    recorded = "of which other answers were recorded" if step in known else "of which no answer was recorded"
    return f"; mismatch KL was largest at step {step}, {short_number(most)}, {recorded}"


def row_mismatch(table: pa.Table, trained: Tokens | None) -> NDArray[np.float64]:
    """Mean |ℓ| of each row; NaN for rows that were not looked at."""
    gap = np.full(table.num_rows, np.nan)
    if trained is None or not len(trained):
        return gap
    total = np.bincount(trained.row, np.abs(np.clip(trained.log_r, -20, 20)), table.num_rows)
    count = np.bincount(trained.row, minlength=table.num_rows)
    return np.where(count > 0, total / np.maximum(count, 1), gap)


def _two(rows: NDArray[np.int64], gap: NDArray[np.float64]) -> list[tuple[str, int]]:
    known = rows[np.isfinite(gap[rows])]
    if not len(known):
        return [("as it came", int(row)) for row in rows[:1]]
    order = known[np.argsort(gap[known], kind="stable")]
    return [("usual mismatch", int(order[len(order) // 2])), ("largest mismatch", int(order[-1]))]
