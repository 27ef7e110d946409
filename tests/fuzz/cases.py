"""One case of the fuzz: the files it needs and the words it is called with, all from a seed and a number."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.fuzz import corpus
from tests.fuzz.mutations import (
    flags_of,
    json_text,
    spoilt_text,
    spoilt_tree,
    spoilt_words,
    spoken,
    toml_text,
    yaml_text,
)
from trimtab.config.presets import PRESETS
from trimtab.dialects import DIALECTS

NAMES = tuple(DIALECTS)


@dataclass(frozen=True)
class Case:
    """Words for `trimtab`, and files by their name under the folder it is called in."""

    number: int
    words: list[str]
    files: dict[str, bytes] = field(default_factory=dict)


def case(seed: int, number: int) -> Case:
    """The case of that number."""
    rng = Random(f"{seed}-{number}")
    words, files = rng.choice(KINDS)(rng)
    return Case(number, words, files)


def settings_file(tree: Any, rng: Random, stem: str, *, any_format: bool) -> tuple[str, bytes]:
    """A spoilt file of settings: mostly in its values, sometimes in its text."""
    spoil = rng.random()
    tree = spoilt_tree(tree, rng) if spoil < 0.7 and not isinstance(tree, list) else tree
    if isinstance(tree, list) or (any_format and rng.random() < 0.12):
        words = flags_of(tree) if isinstance(tree, list | dict) else [str(tree)]
        words = spoilt_words(words, rng) if spoil < 0.7 else words
        name, text = f"{stem}.sh", " ".join(words)
    elif any_format and rng.random() < 0.2:
        make, end = rng.choice(((json_text, "json"), (toml_text, "toml")))
        name, text = f"{stem}.{end}", _made(make, tree)
    else:
        name, text = f"{stem}.yaml", _made(yaml_text, tree)
    return name, spoilt_text(text, rng) if spoil >= 0.6 else text.encode("utf-8", "surrogatepass")


def _made(make: Callable[[Any], str], tree: Any) -> str:
    try:
        return make(tree)
    except (TypeError, ValueError):  # what this format cannot say
        return yaml_text(tree)


def theirs(rng: Random, stem: str) -> tuple[str, str, bytes]:
    """A framework and a spoilt file of its settings."""
    name = rng.choice(NAMES)
    tree = rng.choice(corpus.frameworks()[name])
    return name, *settings_file(tree, rng, stem, any_format=True)


def explain_theirs(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    name, file, data = theirs(rng, "a")
    return ["explain", "--from", name, file, *rng.choice(([], [], ["--documented"]))], {file: data}


def convert(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    name, file, data = theirs(rng, "a")
    words = [
        "convert",
        "--from",
        name,
        file,
        *rng.choice(([], ["--to", rng.choice(NAMES)], ["--to", rng.choice(NAMES)])),
    ]
    words += rng.choice(
        ([], [], ["--check"], ["--documented"], ["--only", rng.choice(("correction", "loss,advantage", "x"))])
    )
    return words, {file: data}


def in_place(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    name, file, data = theirs(rng, "folder/a")
    _, other, more = theirs(rng, "folder/b")
    return ["convert", "--from", name, "--in-place", *rng.choice(([], ["--dry-run"])), "folder"], {
        file: data,
        other: more,
    }


def compare(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    name, file, data = theirs(rng, "a")
    mine, text = settings_file(rng.choice(corpus.own()), rng, "b", any_format=False)
    other = rng.choice((mine, rng.choice(list(PRESETS)), f"{name}:{file}"))
    return ["compare", rng.choice((file, f"{name}:{file}")), other], {file: data, mine: text}


def explain_own(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    file, data = settings_file(rng.choice(corpus.own()), rng, "a", any_format=False)
    words = rng.choice(([], [], overrides(rng), ["--yaml"]))
    return ["explain", file, *words], {file: data}


def explain_preset(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    preset = rng.choice(list(PRESETS.values()))
    words = [f"{name}={spoken(rng) if rng.random() < 0.7 else 2.0}" for name in preset.parameters if rng.random() < 0.6]
    return ["explain", rng.choice((preset.name, preset.name, f"bypass-{preset.name}", spoken(rng))), *words], {}


def overrides(rng: Random) -> list[str]:
    """Dotted keys with anything behind them."""
    keys = ("weight.upper", "gates.0.upper", "gates", "correction", "correction.weight.level", "rollout.samples", "steps", "seed",
            "task.name", "record.project", "loss.kind", "advantage", "a.b.c", "gates[0].lower", "gates.-1", "gates.9.upper", "",
            ".", "a..b", "task", "model.path", "learner.lr", "kl.coefficient", "evaluate")  # fmt: skip
    words = [f"{rng.choice(keys)}={spoken(rng)}" for _ in range(rng.choice((1, 1, 2, 4)))]
    return spoilt_words(words, rng) if rng.random() < 0.2 else words


def train(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    if rng.random() < 0.4:
        return ["train", "--dry-run", *overrides(rng)], {}
    file, data = settings_file(rng.choice(corpus.own()), rng, "a", any_format=False)
    return ["train", file, "--dry-run", *rng.choice(([], [], overrides(rng)))], {file: data}


def a_run(rng: Random) -> dict[str, bytes]:
    """A run with one of its files spoilt."""
    files = dict(corpus.run_files())
    name = rng.choice(list(files))
    found = {f"run/{each}": text.encode() for each, text in files.items()}
    if rng.random() < 0.3:
        found[f"run/{name}"] = spoilt_text(files[name], rng)
    elif name == "config.yaml":
        import yaml

        found[f"run/{name}"] = yaml_text(spoilt_tree(yaml.safe_load(files[name]), rng)).encode("utf-8", "surrogatepass")
    else:
        lines = [json.loads(line) for line in ([files[name]] if name == "run.json" else files[name].splitlines())]
        lines[-1] = spoilt_tree(lines[-1], rng)
        found[f"run/{name}"] = ("\n".join(json_text(line) for line in lines) + "\n").encode()
    return found


def report(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    """Of one run, or of it beside a sound one."""
    files = a_run(rng)
    if rng.random() < 0.6:
        return ["report", "run", *rng.choice(([], ["--charts", "charts"]))], files
    sound = {f"other/{name}": text.encode() for name, text in corpus.run_files().items()}
    return ["report", "run", "other", *rng.choice(([], ["--charts", "charts"]))], files | sound


def resume(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    return ["train", "--resume", "run", "--dry-run", *rng.choice(([], [f"steps={spoken(rng)}"]))], a_run(rng)


def lab_report(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    text = json_text(spoilt_tree(corpus.lab(), rng))
    data = spoilt_text(text, rng) if rng.random() < 0.2 else text.encode()
    return ["lab", "report", "lab", *rng.choice(([], ["--markdown", "page.md"]))], {"lab/lab.json": data}


def lab_signs(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    text = json_text(spoilt_tree(corpus.lab(falls=True), rng))
    return ["lab", "signs", "lab", *rng.choice(([], ["--write", "signs.json"]))], {"lab/lab.json": text.encode()}


def lab_claims(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    file, data = settings_file(corpus.claims(), rng, "a", any_format=False)
    return ["lab", "claims", "--claim", file], {file: data}


def scenario(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    """Read only: with one that is sound, `trimtab lab` would begin to train."""
    file, data = settings_file(rng.choice(corpus.scenarios()), rng, "a", any_format=False)
    return ["(scenario)", file], {file: data}


LOSS = """
def loss(current, proximal, behavior, mask, advantages):
    return -((current - proximal).exp() * advantages * mask).sum()
"""


def check(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    """A module that is sound or cut off, and anything for what is said of it; never many batches."""
    text = LOSS if rng.random() < 0.7 else LOSS[: rng.randrange(len(LOSS))]
    target = rng.choice(("fuzzed:loss", "fuzzed:loss", "fuzzed:lost", "fuzzed", "trimtab", "verl", spoken(rng)))
    words = ["check", target, "--cases", "1", "--law", rng.choice(("splits", "weight", "votes", spoken(rng)))]
    for flag in ("--like", "--rule", "--set", "--advantages", "--seed"):
        if rng.random() < 0.15:
            words += [flag, rng.choice((spoken(rng), f"a={spoken(rng)}", "verl", "token-tis"))]
    return [*words, *rng.choice(([], ["--json"], ["--markdown"], ["--list"]))], {"fuzzed.py": text.encode()}


def saved_lines(rng: Random) -> bytes:
    """A saved batch of a few lines, as NeMo-RL writes them or under names of ours, some of it spoilt."""
    lines: list[str] = []
    for _ in range(rng.choice((1, 2, 5))):
        count = rng.choice((1, 3, 9))
        log_probs = [-rng.random() * 3 for _ in range(count)]
        nemo = {"token_ids": [list(range(count))], "token_loss_mask": [[1] * count], "input_lengths": [count], "rewards": [1.0],
                "sample_loss_mask": [1], "advantages": [[0.5] * count], "generation_logprobs": [log_probs],
                "prev_logprobs": [[each - 0.01 for each in log_probs]], "content": ["a"], "idx": [0]}  # fmt: skip
        own = {"ids": list(range(count)), "m": [True] * count, "q": log_probs, "p": log_probs}
        tree: Any = rng.choice((nemo, own))
        lines.append(json_text(spoilt_tree(tree, rng) if rng.random() < 0.5 else tree))
    text = "\n".join(lines) + "\n"
    return spoilt_text(text, rng) if rng.random() < 0.3 else text.encode("utf-8", "surrogatepass")


def audit(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    named = [
        "--columns",
        rng.choice(("tokens=ids,trained=m,behavior=q,proximal=p", "behavior=q", "behavior", "=", "x=y,,")),
    ]
    words = ["audit", "a.jsonl", *rng.choice(([], named, named, ["--from", rng.choice((*NAMES, "x"))]))]
    words += rng.choice(
        ([], [], ["--json"], ["--markdown"], ["--html", "a.html"], ["--fail-on", "found"], ["--rule", "icepop"])
    )
    return words, {"a.jsonl": saved_lines(rng)}


def parity(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    files = {"a.jsonl": saved_lines(rng), "b.jsonl": saved_lines(rng)}
    named = ["--columns", "tokens=ids,trained=m,behavior=q"]
    return [
        "parity",
        "a.jsonl",
        rng.choice(("a.jsonl", "b.jsonl")),
        *rng.choice(([], named, ["--max-k3", spoken(rng)])),
    ], files


def words_only(rng: Random) -> tuple[list[str], dict[str, bytes]]:
    whole = (["presets", "--json"], ["schema", "correction"], ["explain", "--metrics"], ["convert", "--from", "verl", "a.yaml"],
             ["compare", "off", "icepop"], ["report", "run"], ["lab", "report", "x"], ["check", "--list"], ["audit", "x.jsonl"],
             ["parity", "x.jsonl", "y.jsonl"], ["--version"])  # fmt: skip
    words = spoilt_words(rng.choice(whole), rng)
    begins = "train" in words or (
        words[:1] == ["lab"] and words[1:2] not in (["report"], ["signs"], ["claims"])
    )  # a run is no matter of milliseconds
    return ["presets", *words] if begins else words, {}


KINDS: tuple[Callable[[Random], tuple[list[str], dict[str, bytes]]], ...] = (
    *(explain_theirs,) * 4, *(convert,) * 4, *(compare,) * 2, in_place, *(explain_own,) * 2, explain_preset, *(train,) * 3,
    report, resume, lab_report, lab_signs, lab_claims, scenario, check, audit, audit, parity, words_only,
)  # fmt: skip
