"""Write what the docs take from the code: docs/corrections.md, docs/logged-names.md, and the marked tables of pages
written by hand.

`python docs/generate.py` writes them, `--check` says whether they are up to date. In a page written by hand, whatever stands
between `<!-- NAME: written by docs/generate.py -->` and `<!-- end of NAME -->` is renewed: `lab`, `claims`,
`early warnings`, `leaves`, `losses`, `estimators`, `settings of a run`, or the fields of a settings class, as `fields of Clip`.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # for those that load this file by its path

import numpy as np
import theory
from logged_names import logged_page
from risk_tables import engine_table, recording_table, risk_table
from tables import cell, table

from trimtab.config import training
from trimtab.config.advantages import ESTIMATORS, Estimator, Normalise, Overlong, Shaping
from trimtab.config.base import Config
from trimtab.config.bounds import BatchBounds
from trimtab.config.correction import Correction, Gate, Limit, Weight
from trimtab.config.divergences import DIVERGENCES
from trimtab.config.files import to_yaml
from trimtab.config.losses import LOSSES, EntropyBonus, KlPenalty, Reduction
from trimtab.config.presets import BYPASS, PRESETS, Preset
from trimtab.config.rollout import Sglang, Vllm
from trimtab.explain.examples import SETTING, examples
from trimtab.explain.gate_words import as_written
from trimtab.explain.sensitivity import rarely_fires
from trimtab.explain.words import Passage, formulas, passages
from trimtab.lab.early_warning import WARNING_HEAD, early_warnings, warning_texts
from trimtab.lab.evidence.claim import shipped_claims
from trimtab.lab.evidence.decide import ClaimFinding, ClaimPlan, claim_finding, kept_labs
from trimtab.lab.evidence.pages import (
    claims_html,
    interval_text,
    needed_text,
    ordered_findings,
    outcome_text,
    rate_text,
    rates,
    signed,
    survival_text,
)
from trimtab.lab.markdown import page_files
from trimtab.lab.results import LabResults, read_results
from trimtab.lab.scenario import CONTROL
from trimtab.lab.statistics.decision import LEVEL
from trimtab.lab.table import in_code, last_by_seed, markdown_table
from trimtab.report.html import percent

ROOT = Path(__file__).parents[1]
PAGE, README = ROOT / "docs" / "corrections.md", ROOT / "README.md"
LOGGED_PAGE = ROOT / "docs" / "logged-names.md"
LOSSES_PAGE, ADVANTAGES_PAGE = ROOT / "docs" / "losses.md", ROOT / "docs" / "advantages.md"
TRAINING_PAGE, LAB_PAGE = ROOT / "docs" / "training.md", ROOT / "docs" / "lab.md"
CHOOSE_PAGE = ROOT / "docs" / "choose.md"
RISKS_PAGE = ROOT / "docs" / "risks.md"
LAB = ROOT / "docs" / "lab.json"
LAB_KEPT = ROOT / "docs" / "lab-kept.json"
MARKED = re.compile(
    r"<!-- (?P<name>[^:>]+): written by docs/generate\.py -->\n.*?<!-- end of (?P=name) -->", re.MULTILINE | re.DOTALL
)
FEW = {
    "k3-rs-beats-off": "sequences dropped by k3 end above no correction",
    "token-tis-beats-off": "truncated token weights end above no correction",
    "dppo-tv-beats-clip": "DPPO's mask ends above PPO's clip",
    "kpop-beats-icepop": "KPop ends above IcePop",
    "centering-beats-tis-stale": "score centering ends above token weights",
}
"""The claims that the README shows, in few words; docs/lab.md has all."""
FIELDS_OF: dict[str, type[Config]] = {
    each.__name__: each
    for each in (
        *LOSSES.values(),
        Reduction,
        KlPenalty,
        EntropyBonus,
        *ESTIMATORS.values(),
        Estimator,
        Shaping,
        Overlong,
    )
} | {"Normalise": Normalise}

INTRO = f"""<!-- Written by docs/generate.py from src/trimtab/config; edit there. -->
# Corrections

One section per preset: formula, pictures, words, names elsewhere, when it fires, what it [costs](#bias-and-variance) in bias and variance,
the lab's verdict, the tests that hold it. Then every [divergence](#divergences) and every [field](#fields). Symbols are those of
[notation](notation.md): ℓ is the log-ratio of a token, r = e^ℓ, p and q its probability under the two policies compared.

- `trimtab.preset("NAME", parameter=value)` gives the value; `trimtab explain NAME parameter=value` says the same as here
  with your numbers.
- `{BYPASS}NAME` is the same rule on log current − log behavior, without proximal log-probs.
- Unless a section says otherwise, the weight multiplies the policy-gradient term only, and a loss is divided by the count
  before rejection.
- A source is that of the rule. Default numbers are those of the source, or of the framework that `Numbers` names; only `vaco`
  deviation is ours. `geo-rs` bounds are SkyRL's. Some of these numbers hardly ever act, which `Bounds` then says, with one that
  does. Look at the kept fraction before you trust a threshold.
- Examples are worked with the default numbers. {SETTING}

"""


def page() -> str:
    """The whole of docs/corrections.md."""
    lab = the_lab()
    parts = [INTRO, preset_table(), "\n"]
    parts.extend(preset_section(each) + theory.section(each, lab) for each in PRESETS.values())
    parts.extend([theory.METHOD, divergences(), fields()])
    return "".join(parts)


def preset_table() -> str:
    """Every preset in a line, linked to its section."""
    rows = [(f"[`{name}`](#{anchor(name)})", each.meaning, parameters(each)) for name, each in PRESETS.items()]
    return table(("preset", "what it does", "parameters"), rows)


def anchor(heading: str) -> str:
    """The name a heading has in a link: lower case, blanks as dashes, other signs dropped."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def preset_section(preset: Preset) -> str:
    """A preset: formulas, pictures, words, parameters, source, examples, names elsewhere, YAML."""
    rule = preset()
    usual = ("Log-ratio", "Loss" if (rule.denominator, rule.applies_to) == ("trained", "policy") else "")
    steps = [section for section in passages(rule) if section.title not in usual]
    needs = dict(passages(rule)[0].lines)["needs"]
    parts = [
        f"## {preset.name}\n\n{preset.meaning}\n\n",
        "```text\n" + "\n".join(formulas(rule)) + "\n```\n\n",
        theory.shown(preset.name),
        "".join(bullet(section) for section in steps),
        f"- **Needs** {needs}.\n",
        f"- **Parameters** {parameters(preset)}{'' if preset.two_policies else '; no bypass form'}.\n",
        f"- **Source** {preset.source}.\n",
        f"- **Numbers** {preset.numbers}.\n" if preset.numbers else "",
        "".join(f"- **Bounds** {doubt}\n" for gate in rule.gates if (doubt := rarely_fires(gate))),
        "\n",
        table(("example", "what happens"), examples(rule)),
        "\n",
    ]
    if preset.called:
        parts.append(
            table(("framework", "calls it"), [(name, f"`{called}`") for name, called in preset.called.items()])
        )
        parts.append("\n")
    return "".join([*parts, f"```yaml\n{to_yaml(rule)}```\n\n"])


def bullet(section: Passage) -> str:
    """A section as one list item."""
    texts = {label: text for label, text in section.lines if (label, text) != ("acts", "always")}
    return f"- **{section.title}** " + "; ".join(f"{label}: {cell(text)}" for label, text in texts.items()) + ".\n"


def parameters(preset: Preset) -> str:
    """The parameters with their defaults, as code."""
    found = [f"`{name}={'null' if value is None else as_written(value)}`" for name, value in preset.parameters.items()]
    return ", ".join(found) or "none"


def divergences() -> str:
    """What a gate can test."""
    rows = [
        (
            f"`{name}`",
            direction or "",
            f"{formula},  {facts.where}" if facts.where and direction == "forward" else formula,
            as_written(facts.neutral),
            facts.words,
        )
        for name, facts in DIVERGENCES.items()
        for direction, formula in facts.formulas.items()
    ]
    return (
        "## Divergences\n\nThe value of one token, by `metric` and `direction`. Averaged over tokens that behavior sampled, `forward` "
        "estimates KL(behavior ‖ target); `reverse` exchanges the two policies. Ratios are gathered in log space: their mean is "
        "the geometric mean, their sum the product. The other divergences are gathered as they stand.\n\n"
        + table(("metric", "direction", "formula", "on-policy", "meaning"), rows)
        + "\n"
    )


def fields() -> str:
    """Every setting, from the description it carries."""
    parts = ["## Fields\n\n"]
    for kind in (Correction, Gate, Weight, BatchBounds, Limit):
        parts.append(
            f"### {kind.__name__}\n\n{kind.__doc__}\n\n{table(('field', 'values', 'default', 'meaning'), field_rows(kind))}\n"
        )
    return "".join(parts).rstrip("\n") + "\n"


def field_rows(kind: type[Config]) -> list[tuple[str, str, str, str]]:
    """One row per field of a settings class."""
    schema = kind.model_json_schema()
    rows: list[tuple[str, str, str, str]] = []
    for name, described in schema["properties"].items():
        default = "required" if name in schema.get("required", []) else _default(kind.model_fields[name].default)
        rows.append((f"`{name}`", values(described), default, described.get("description", "")))
    return rows


def own_fields(kind: type[Config]) -> str:
    """The fields a class adds to what it inherits, without its name."""
    own = [row for row in field_rows(kind) if row[0].strip("`") in kind.__annotations__ and row[0] != "`kind`"]
    return table(("field", "values", "default", "meaning"), own) if own else "No fields of its own.\n"


def kinds(classes: Mapping[str, type[Config]]) -> str:
    """Every class of a table by its kind, linked to its section, with the sentence it carries."""
    rows = [
        (f"[`{each.__name__}`](#{anchor(each.__name__)})", f"`{kind}`", each.__doc__ or "")
        for kind, each in classes.items()
    ]
    return table(("class", "kind", "what it is"), rows)


def values(described: dict[str, Any]) -> str:
    """What a field accepts, from its JSON schema."""
    if "$ref" in described:
        return described["$ref"].rpartition("/")[2]
    if "anyOf" in described:
        return ", ".join(values(each) for each in described["anyOf"] if each != {"type": "null"})
    if "enum" in described or "const" in described:
        return ", ".join(f"`{each}`" for each in described.get("enum", [described.get("const")]))
    if described.get("type") == "array":
        items = described.get("items") or described["prefixItems"][0]
        return f"list of {values(items)}"
    if "oneOf" in described:
        return "a value with a `kind`"
    return described["type"]


def _default(value: object) -> str:
    if isinstance(value, Config):
        changed = ", ".join(f"{name}={each!r}" for name, each in value.settings().items())
        return f"`{type(value).__name__}({changed})`"
    return "none" if value is None else "empty" if value in ((), {}) else f"`{value}`"


RUN_SETTINGS: tuple[type[Config], ...] = (
    training.Train,
    training.Model,
    training.Tiny,
    training.WarmStart,
    training.Teacher,
    training.Task,
    training.Reward,
    training.Rollout,
    Vllm,
    Sglang,
    training.Ray,
    training.LearnerSettings,
    training.Lora,
    training.Evaluate,
    training.Checkpoint,
    training.Record,
)


def run_settings() -> str:
    """Every setting of a run, section by section; those of corrections, losses and advantages have pages of their own."""
    return "\n".join(
        f"### {kind.__name__}\n\n{kind.__doc__}\n\n{table(('field', 'values', 'default', 'meaning'), field_rows(kind))}"
        for kind in RUN_SETTINGS
    )


def the_lab() -> LabResults:
    """The lab that the pages tell of: its numbers are kept, its verdicts are made from them."""
    return read_results(LAB).with_verdicts()


def votes() -> str:
    """Last accuracies where rejected rows voted and where they did not."""
    both = {"all vote": the_lab(), "kept vote": read_results(LAB_KEPT).with_verdicts()}
    kept = both["kept vote"]
    scenarios = [name for name in kept.scenarios if name != CONTROL]
    names = dict.fromkeys(each.correction for each in kept.entries if each.scenario != CONTROL)
    rows = [
        [f"`{name}`", *(last_by_seed(book, scenario, name) for scenario in scenarios for book in both.values())]
        for name in names
    ]
    return table(["last accuracy by seed", *(f"{scenario}, {who}" for scenario in scenarios for who in both)], rows)


PLAN = ClaimPlan(shipped_claims())
"""Every claim of ours, with the steps of its task."""


@cache
def claim_labs() -> dict[str, list[LabResults]]:
    """The labs of each task, as far as they were run: `claims-TASK.json`, and what was run apart from it, `claims-TASK.2.json`."""
    return {task: kept_labs(PLAN, task, ROOT / "docs") for task in PLAN.table.tasks}


@cache
def known_of_claims() -> tuple[ClaimFinding, ...]:
    """Every claim with what is known of it, the decided ones first."""
    return tuple(ordered_findings([claim_finding(each, *claim_labs()[each.task]) for each in PLAN.table.claims]))


@cache
def claim_rates() -> dict[str, str]:
    """The false discovery rate of every verdict, by the id of its claim."""
    every = known_of_claims()
    return {each.claim.id: rate_text(each, rate) for each, rate in zip(every, rates(every), strict=True)}


VERDICT_HEAD = (
    *("claim", "verdict", f"difference, {percent(LEVEL)} interval", "seeds", "q", "survived, first / second", "id"),
)


def claim_tables() -> str:
    """Every claim that was run, task by task: what holds, how sure it is, and the id that runs it again."""
    ran = [each for each in known_of_claims() if each.decision.seeds]
    tasks = dict.fromkeys(each.task for each in shipped_claims().claims)
    parts = [
        f"**{in_code(task)}**: {shipped_claims().tasks[task].meaning}\n\n"
        f"{markdown_table(VERDICT_HEAD, map(_claim_row, found))}\n"
        for task in tasks
        if (found := [each for each in ran if each.claim.task == task])
    ]
    unrun = [in_code(each.claim.id) for each in known_of_claims() if not each.decision.seeds]
    return f"{claim_effort()}\n\n{''.join(parts)}Not run yet: {', '.join(unrun) or 'none'}.\n"


def _claim_row(found: ClaimFinding) -> tuple[str, ...]:
    """A claim under `VERDICT_HEAD`; what can fool it stands beside its verdict."""
    decision = found.decision
    verdict = needed_text(found) if decision.outcome == "not decided" else f"**{outcome_text(found)}**"
    verdict = f"not decided: {verdict}" if decision.outcome == "not decided" else verdict
    beside = "".join(f", *{label}*" for label in dict.fromkeys(note.split(":")[0].lower() for note in found.notes))
    unit = "" if found.claim.measure == "late accuracy" else f" of {found.claim.measure}"
    text = found.claim.text.rstrip(".")
    difference = f"{interval_text(decision.difference)}{unit}"
    name = found.claim.id
    sure = (str(decision.seeds), claim_rates()[name])
    return text, f"{verdict}{beside}", difference, *sure, survival_text(found), in_code(name)


def few_claims() -> str:
    """The claims that the README shows, and of how many they were chosen."""
    by_id = {each.claim.id: each for each in known_of_claims()}
    rows = [
        (
            text,
            outcome_text(by_id[name]),
            interval_text(by_id[name].decision.difference),
            str(PLAN.steps_of(by_id[name].claim.task)),
            str(by_id[name].decision.seeds),
            claim_rates()[name],
        )
        for name, text in FEW.items()
    ]
    counted = Counter(outcome_text(each).partition(" of ")[0] for each in known_of_claims())
    others = ", ".join(f"{count} {outcome}" for outcome, count in counted.most_common())
    head = ("said of samples eight versions old", "here", f"accuracy, {percent(LEVEL)} interval", "steps", "seeds", "q")
    counts = "[q](docs/lab.md#what-a-verdict-rests-on) counts them all"
    about = f"Five of {len(known_of_claims())} claims ({others}), each true of its steps only; {counts}:"
    return f"{about}\n\n{markdown_table(head, rows)}"


def claim_effort() -> str:
    """How much was run for the claims, and where."""
    labs = [lab for each in claim_labs().values() for lab in each]
    entries = [each for lab in labs for each in lab.entries if each.status == "done"]
    hours = sum(each.seconds for each in entries) / 3600
    machines = " and ".join(dict.fromkeys(lab.machine for lab in labs)) or "no machine"
    return f"{len(entries)} runs, {hours:.1f} hours of training on one core of a busy machine ({machines})."


def warnings_before_falls() -> str:
    """Which signal predicts, over every cell that is kept."""
    files = [LAB, LAB_KEPT, *sorted(LAB.parent.glob("claims-*.json"))]
    entries = [each for file in files for each in read_results(file).entries]
    return markdown_table(WARNING_HEAD, map(warning_texts, early_warnings(entries)))


def leaves() -> str:
    """What the lab measured of the rules that a decision may end at: every seed, and the difference to no correction."""
    lab = the_lab()
    scenarios = [name for name in lab.scenarios if name != CONTROL]
    ran = [name for name in lab.corrections if all(lab.cells(scenario, name) for scenario in scenarios)]
    names = sorted(ran, key=lambda name: -min(each.last for each in lab.cells(scenarios[0], name)))
    rows = [
        [f"`{name}`", *(text for scenario in scenarios for text in _against_none(lab, scenario, name))]
        for name in names
    ]
    head = [
        text for name in scenarios for text in (f"{name}: last accuracy by seed", "less `off`: mean (least to most)")
    ]
    return table(["rule", *head], rows)


def _against_none(lab: LabResults, scenario: str, name: str) -> tuple[str, str]:
    cells = lab.cells(scenario, name)
    differences = [mine.last - none.last for mine, none in zip(cells, lab.cells(scenario, "off"), strict=True)]
    spread = f"{signed(float(np.mean(differences)))} ({signed(min(differences))} to {signed(max(differences))})"
    return last_by_seed(lab, scenario, name), "" if name == "off" else spread


MADE: dict[str, Callable[[], str]] = {
    "losses": lambda: kinds(LOSSES),
    "estimators": lambda: kinds(ESTIMATORS),
    "settings of a run": run_settings,
    "lab": few_claims,
    "votes": votes,
    "claims": claim_tables,
    "early warnings": warnings_before_falls,
    "leaves": leaves,
    "risks": risk_table,
    "engines": engine_table,
    "recordings": recording_table,
}


def renewed(text: str) -> str:
    """A page written by hand with its marked tables made again."""

    def made(found: re.Match[str]) -> str:
        name = found["name"]
        kind = name.removeprefix("fields of ")
        return (
            f"<!-- {name}: written by docs/generate.py -->\n"
            f"{own_fields(FIELDS_OF[kind]) if kind != name else MADE[name]()}"
            f"<!-- end of {name} -->"
        )

    return MARKED.sub(made, text)


def pages() -> dict[Path, str]:
    """Every page with the text it should have."""
    by_hand = (README, LOSSES_PAGE, ADVANTAGES_PAGE, TRAINING_PAGE, LAB_PAGE, CHOOSE_PAGE, RISKS_PAGE)
    lab = {LAB.parent / name: text for name, text in page_files(the_lab(), "lab-tables.md").items()}
    shown = (
        {ROOT / "docs" / "claims.html": claims_html(known_of_claims(), claim_effort())}
        if any(claim_labs().values())
        else {}
    )
    made = {PAGE: page(), LOGGED_PAGE: logged_page()}
    return made | lab | shown | {path: renewed(path.read_text(encoding="utf-8")) for path in by_hand}


def main(arguments: list[str]) -> int:
    """Write the pages, or with --check compare them."""
    stale = False
    for path, text in pages().items():
        fresh = path.is_file() and path.read_text(encoding="utf-8") == text
        stale = stale or not fresh
        if "--check" in arguments:
            print(f"{path.name} is {'up to date' if fresh else 'stale: run `python docs/generate.py`'}.")
        elif not fresh:
            path.write_text(text, encoding="utf-8")
            print(f"Wrote {path}.")
    return int("--check" in arguments and stale)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
