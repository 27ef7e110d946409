"""The model card beside a checkpoint's weights: what was trained from what, how, and how well it does. Markdown, never obeyed.

It says the same for the same run, whenever and wherever that is run again: no time, no machine, no count of ranks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from trimtab import __version__
from trimtab.config.interpolation import escape_references
from trimtab.config.safe_yaml import SettingsDumper, yaml_of
from trimtab.config.training import Train
from trimtab.config.visible import on_one_line, visible
from trimtab.explain.words import formulas

CARD = "README.md"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_ELSEWHERE = ("ray", "record", "checkpoint", "threads")
_OF_LEARNER = ("ranks", "shard", "device")
"""Settings that say where a run was run and what it kept, not what was learnt."""


@dataclass(frozen=True)
class HeldOut:
    """Accuracy on held-out problems."""

    accuracy: float
    problems: int
    step: int
    """Steps done when it was measured."""
    before: float | None = None
    """The same before the first step."""


def model_card(config: Train, *, step: int, held_out: HeldOut | None) -> str:
    """The card of the weights after so many steps, with the front matter that the Hugging Face hub reads."""
    base, task = config.model.path, config.task
    parts = [
        _front_matter(config),
        f"# {_code(base) if base else 'A tiny policy'}, trained on {_code(task.name)}\n\n",
        f"Weights after {step} of {config.steps} steps of reinforcement learning with trimtab {__version__}.\n\n",
        f"- **Base model**: {_base(config)}\n",
        f"- **Task**: {_code(task.name)}{f', from {_code(task.path)}' if task.path else ''}\n",
        f"- **Held-out accuracy**: {_accuracy(held_out)}\n",
        f"- **Loss**: {_code(config.loss.kind)}, reduced by {_code(config.reduction.mode)}\n",
        f"- **Advantage**: {_code(config.advantage.kind)}\n",
        f"- **Samples**: {config.rollout.groups} prompts × {config.rollout.samples} responses a step, at most "
        f"{config.rollout.max_staleness} versions old\n",
        "- **Licence**: not stated. Fill in `license` above; that of the base model and of the data may bind you.\n\n",
        "## Correction\n\n",
        _block("text", "\n".join(formulas(config.correction))),
        "## Again\n\n",
        "The settings that decide what is learnt; what is not named has its default of that version. Where the run was run (ranks, "
        "devices, a cluster) is left out. Save them as `run.yaml`:\n\n",
        _block("yaml", _yaml(escape_references(_settings(config)))),
        _block("console", "$ trimtab train run.yaml"),
        "## Load\n\n",
        _block(
            "python",
            "from transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
            'model, tokenizer = (each.from_pretrained(".") for each in (AutoModelForCausalLM, AutoTokenizer))',
        ),
    ]
    return "".join(parts).rstrip("\n") + "\n"


def _front_matter(config: Train) -> str:
    """YAML between two lines of dashes. The licence is left to whoever publishes the weights."""
    tags = ["trimtab", "reinforcement-learning", config.advantage.kind, config.loss.kind]
    lines = ["library_name: transformers", "pipeline_tag: text-generation", f"tags: [{', '.join(map(_quoted, tags))}]"]
    path = config.model.path
    if path is not None and _HUB_ID.fullmatch(path):
        lines.append(f"base_model: {_quoted(path)}")
    return "\n".join(["---", *lines, "# license: yours to fill in", "---", "", ""])


def _base(config: Train) -> str:
    model, tiny = config.model, config.model.tiny
    if model.path is not None:
        return f"{_code(model.path)}{', its architecture with random weights' if model.random else ''}"
    started = "a supervised start of its own" if model.warm_start is not None else "random weights"
    size = ", ".join(f"{name} {value}" for name, value in tiny.model_dump().items())
    return f"none: a tiny transformer ({on_one_line(size)}), begun with {started}"


def _accuracy(held_out: HeldOut | None) -> str:
    if held_out is None:
        return "not measured"
    before = "" if held_out.before is None else f"; {held_out.before:.3f} before the first"
    return f"{held_out.accuracy:.3f} of {held_out.problems} problems, after {held_out.step} steps{before}"


def _settings(config: Train) -> dict[str, Any]:
    found = {name: value for name, value in config.settings().items() if name not in _ELSEWHERE}
    if isinstance(found.get("learner"), Mapping):
        found["learner"] = {name: value for name, value in found["learner"].items() if name not in _OF_LEARNER}
    return {name: value for name, value in found.items() if value != {}}


def _yaml(settings: Any) -> str:
    """Settings as files hold them; with signs that cannot be seen, those and all beyond ASCII by their numbers, which YAML reads back."""
    text = yaml_of(settings)
    return (
        text
        if visible(text) == text
        else yaml.dump(settings, Dumper=SettingsDumper, sort_keys=False, default_flow_style=False)
    )


def _quoted(text: str) -> str:
    """A string of YAML on one line, whatever it holds: JSON's, of visible signs."""
    return json.dumps(on_one_line(text), ensure_ascii=False)


def _code(text: str) -> str:
    """Code within a line; nothing in it ends the code or the line."""
    return f"`{on_one_line(text).replace('`', chr(39))}`"


def _block(language: str, text: str) -> str:
    """A block of code between fences longer than any row of their sign in it."""
    shown = visible(text).rstrip("\n")
    longest = max((len(found) for found in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}\n\n"
