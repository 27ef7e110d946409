"""A lab as Markdown: the short table for a README, and a page with figures."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from trimtab.config.files import to_yaml
from trimtab.config.kept_shares import STARVED
from trimtab.config.training import Train
from trimtab.lab.panels import LINES, figure_name, scenario_figures
from trimtab.lab.results import LabResults
from trimtab.lab.scenario import CONTROL
from trimtab.lab.table import (
    CAUTION,
    HEAD,
    correction_rows,
    equal_rows,
    in_code,
    in_prose,
    markdown_table,
    readme_table,
    remarks,
    row_texts,
    time_taken,
)
from trimtab.lab.verdict import BEHIND, FULL
from trimtab.report.html import percent
from trimtab.report.write import write_page as write_one

RULES = f"""Verdicts, per cell, from held-out accuracy; each difference counts beyond three standard errors of the evaluation:

- **collapsed**: the last evaluation is under half of the run's own best, or under its start;
- **starved**: less than {percent(STARVED)} of the tokens were kept in more than half of the steps: it survives by not learning;
- **degraded**: the last evaluation or the lowest of the last third is more than {BEHIND:g} under the control of the same seed, or the
  run fell under half of its best in the last third and came back;
- **healthy**: none of these after {FULL} steps; after fewer it is only *stable so far*.
- A control that never left its start is **flat**.
"""


OWN = """## With corrections and scenarios of your own

```text
trimtab lab --quick                                     160 steps, three seeds, a core each: which ones fall at once
trimtab lab --full                                      400 steps: needed before anything is called healthy
trimtab lab --scenario stale --correction "geo-rs(lower=0.9,upper=1.1)" --correction areal:my.yaml
trimtab lab --scenario older.yaml learner.lr=1e-4 advantage.baseline=kept
trimtab lab thresholds --scenario quantized             what each gate keeps, and which threshold would keep 90 %
```

Ctrl-C stops it and the same command goes on. A scenario is a few lines over the settings that all cells share:

```yaml
meaning: Samples 16 versions old.
train:
  rollout: {max_staleness: 16}
```
"""


def readme_text(results: LabResults) -> str:
    """For a README: one table, and what must stand beside it."""
    return f"{readme_table(results)}\nBold: collapsed or starved. {' '.join(map(in_prose, remarks(results)))}\n"


def lab_markdown(results: LabResults, pictures: str = "") -> str:
    """The whole page; `pictures` is the folder of the figures as seen from it."""
    names = [name for name in results.scenarios if results.of(name)]
    parts = [
        "<!-- Written by `trimtab lab report DIR --markdown FILE` from lab.json; edit nothing here. -->\n# Lab tables\n",
        f"**{CAUTION}**\n",
        f"The same training, {results.steps} steps, seeds {', '.join(map(str, results.seeds))} (each with a warm start of its own), for "
        f"{len(results.corrections)} corrections; nothing but scenario, correction and seed differs between two cells. "
        f"{in_prose(time_taken(results))}; trimtab {in_prose(results.trimtab)}. Run it: {in_code(_command(results))}.\n",
        "".join(f"- {in_prose(each)}\n" for each in remarks(results) if each != CAUTION),
        RULES,
        *(_scenario(results, name, pictures) for name in names),
        OWN,
        _settings(results),
    ]
    return "\n".join(part for part in parts if part)


def _command(results: LabResults) -> str:
    """What runs these scenarios; the control is named only where it was run with more than it must be."""
    named = [name for name in results.scenarios if results.of(name) and _is_drawn(results, name)]
    length = "--full" if results.steps == FULL else f"--steps {results.steps}"
    return " ".join(["trimtab lab", length, *(f"--scenario {shlex.quote(name)}" for name in named)])


def page_files(results: LabResults, name: str) -> dict[str, str]:
    """The page under a name and, beside it, its figures."""
    return {name: lab_markdown(results)} | scenario_figures(
        results, [each for each in results.scenarios if _is_drawn(results, each)]
    )


def write_lab_page(results: LabResults, file: Path) -> list[Path]:
    """The same, written; what was."""
    made = {file.parent / name: text for name, text in page_files(results, file.name).items()}
    for path, text in made.items():
        write_one(path, text)
    return list(made)


def _scenario(results: LabResults, name: str, pictures: str) -> str:
    lines = [[in_code(first), *rest] for first, *rest in map(row_texts, correction_rows(results, name))]
    picture = ""
    if _is_drawn(results, name):
        colours = ", ".join(f"{colour} seed {seed}" for colour, seed in zip(LINES, results.seeds, strict=False))
        picture = (
            f"\n![Held-out accuracy by correction, {in_prose(name)}]({pictures}{figure_name(name)})\n\n"
            f"Held-out accuracy over the steps: {colours}; grey the uncorrected on-policy controls.\n"
        )
    same = equal_rows(results, name, quote=True)
    table = markdown_table(HEAD, lines) + (f"\n{same}\n" if same else "")
    return f"## Scenario {in_prose(name)}\n\n{in_prose(results.scenarios[name])}\n\n{table}{picture}"


def _is_drawn(results: LabResults, scenario: str) -> bool:
    """Whether a scenario has anything to compare; a control of the uncorrected run alone stands behind every other figure."""
    return scenario != CONTROL or len({each.correction for each in results.of(scenario)}) > 1


def _settings(results: LabResults) -> str:
    config = Train.from_settings(results.base)
    base, voters = to_yaml(config), config.advantage.baseline
    fence = "`" * max(3, *(len(run) + 1 for run in ["", *re.findall("`+", base)]))
    return (
        f"## Settings of every cell\n\n`advantage.baseline` is `{voters}`. What differs from the defaults of `trimtab train`:\n\n"
        f"{fence}yaml\n{base}{fence}\n"
    )
