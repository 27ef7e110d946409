"""The theory of each preset, for its section in docs/corrections.md: when it fires, what it costs, the lab, its tests.

docs/generate.py writes it, docs/pictures.py draws it. Everything is made from the preset's value, so a new one needs nothing here.
"""

from __future__ import annotations

import math

import costs  # docs/ is on the path
import fates
import held
import pictures

from trimtab.config.presets import BYPASS, PRESETS, Preset
from trimtab.lab.evidence.claim import shipped_claims
from trimtab.lab.results import LabResults
from trimtab.lab.scenario import CONTROL
from trimtab.lab.table import last_by_seed, markdown_table
from trimtab.lab.verdict import tally


def section(preset: Preset, lab: LabResults) -> str:
    """What follows the formulas and the names of a preset."""
    name = preset.name
    parts = ["### When it fires\n\n", firing(name), "### What it costs\n\n", cost_text(name)]
    parts += ["### In the lab\n\n", lab_text(name, lab), "### Tested by\n\n"]
    return "".join([*parts, "".join(f"- `{each}`\n" for each in held.tests_of(name, preset())), "\n"])


def shown(name: str) -> str:
    """The pictures as Markdown."""
    lines = [
        f"![{pictures.DRAWN[kind][0]}, {name}](theory/{pictures.file_of(name, kind).name})"
        for kind in pictures.kinds_of(name)
    ]
    return "\n".join(lines) + "\n\n"


def firing(name: str) -> str:
    """Where the rule acts, for one ratio that leaves 1 and for all."""
    lines: list[str] = []
    for sight in fates.SIGHTS:
        by_sign = {sign: fates.told(name, sight, sign) for sign in fates.signs(name)}
        said = [f"with advantage {'+1' if sign > 0 else '−1'} {text}" for sign, text in by_sign.items()]
        text = "; ".join(said) if len(said) > 1 else next(iter(by_sign.values()))
        lines.append(f"- {sight.title}: {text}.\n")
    return "".join([*lines, "\n"])


COST_HEAD = (
    "σ",
    "acted on",
    "mean weight",
    "ESS",
    "bias for the token",
    "for the prefix",
    "for the sequence",
)


def cost_text(name: str) -> str:
    """Bias and variance at a few spreads, and for rules that center what that takes off."""
    rule = PRESETS[name]()
    if not costs.has_cost(rule):
        return "Not computed, because it looks at more than the ratios of the sampled tokens.\n\n"
    found = [(spread, costs.cost(name, spread)) for spread in costs.TOLD]
    rows = [
        (f"{spread:g}", _share(each.touched), _digits(each.mean), _share(each.ess), *map(_digits, _biases(each)))
        for spread, each in found
    ]
    parts = [
        f"[How this is computed](#bias-and-variance) and what the columns mean.\n\n{markdown_table(COST_HEAD, rows)}\n"
    ]
    if rule.centering is not None:
        plain = rule.but(centering=None)
        pairs = [(spread, costs.push(plain, spread), costs.push(rule, spread)) for spread in costs.TOLD]
        lines = [
            (f"{spread:g}", f"{a.mean:.3f}", f"{b.mean:.3f}", f"{a.second_moment:.3f}", f"{b.second_moment:.3f}")
            for spread, a, b in pairs
        ]
        head = ("σ", "push without centering", "with it", "mean square without", "with it")
        parts.append(
            "Weights do not show what centering does. The push is the norm of the mean gradient that an advantage of 1 gives the "
            f"logits of one position with {costs.IDS} ids; on-policy it is 0.\n\n{markdown_table(head, lines)}\n"
        )
    return "".join(parts)


def _biases(each: costs.Cost) -> tuple[float, float, float]:
    return each.token, each.prefix, each.sequence


def _digits(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"


def _share(value: float) -> str:
    percent = 100 * value
    return (
        f"{percent:.0f} %"
        if percent in (0, 100) or 1 <= percent <= 99
        else f"{percent:.2g} %"
        if percent < 1
        else f"{percent:.1f} %"
    )


METHOD = f"""## Bias and variance

The cost of a rule is computed by `docs/costs.py`, with the engine's own weights, on ratios whose distribution is known. The
log-ratio of every token is σ·z − σ²/2 with z standard normal and independent, so that a ratio is log-normal with mean 1. There are
{costs.ROWS:,} sequences of {costs.LENGTH} tokens. Over a sequence the log of the product spreads by σ·√{costs.LENGTH}: by 0.2, 1 and 3
for the three rows of each table. Two engines with the same weights differ by a σ of 0.001 to 0.05; old or
quantised weights differ by more.

- **Acted on**: tokens that a gate rejected or set to 0, or whose weight a bound changed.
- **Mean weight**: over the count that divides the loss. Below 1 the step is that much smaller.
- **ESS**: (E w)² / E w². A weighted mean has the variance of that share of the samples, unweighted.
- **Bias**: a rule with weights w trains on q·w / E[w] in place of q·ρ. The number is the total variation of the two,
  1 − E[min(w / E[w], ρ)]: the most by which the mean of something between 0 and 1 comes out wrong. ρ is the ratio of the token alone, of
  all tokens up to it, or of its whole sequence. For the reward of a whole answer, the last is the right one.

In the pictures and under *when it fires*, the one token has q = 0.1 and the tokens that are alike q = 0.5, or less
where p would exceed 0.9.

Rules that look at probabilities see q drawn evenly between 0.01 and 0.99 of the most that leaves p ≤ 1. Rules that look at advantages see
+1 and −1 in turn. Real gaps are neither log-normal nor independent; `trimtab audit` shows what every rule
keeps of a batch of yours, with mean weight and ESS.

"""


def lab_text(name: str, lab: LabResults) -> str:
    """What the lab found: last accuracy of every seed and the verdict, and the claims that speak of it."""
    runs = [each for each in lab.corrections if each.partition("(")[0].removeprefix(BYPASS) == name]
    scenarios = [each for each in lab.scenarios if each != CONTROL and lab.of(each)]
    rows = [
        (f"`{run}`", *(_in_scenario(lab, scenario, run) for scenario in (CONTROL, *scenarios)))
        for run in runs
        if any(lab.cells(scenario, run) for scenario in scenarios)
    ]
    claims = [
        each
        for each in shipped_claims().claims
        if name in (_name(each.first.correction), _name(each.second.correction))
    ]
    named = ", ".join(f"`{each.id}`" for each in claims)
    parts = (
        [f"Claims about it: {named}. [The lab](lab.md#what-holds) says what is known of each.\n\n"] if claims else []
    )
    if not rows:
        return "".join(["It was not among the [lab's](lab.md) corrections.\n\n", *parts])
    seeds = ", ".join(map(str, lab.seeds))
    text = (
        f"Last accuracy with seeds {seeds} after {lab.steps} steps, and the verdict on each run; bold where it collapsed or "
        "starved. This is a toy and shows what can happen ([lab](lab.md)).\n\n"
    )
    return "".join([text, markdown_table(("run", CONTROL, *scenarios), rows), "\n", *parts])


def _name(correction: str) -> str:
    return correction.partition("(")[0].removeprefix(BYPASS)


def _in_scenario(lab: LabResults, scenario: str, run: str) -> str:
    cells = lab.cells(scenario, run)
    return f"{last_by_seed(lab, scenario, run)} ({tally([each.word for each in cells])})" if cells else "–"
