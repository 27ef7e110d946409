"""Risks: what makes a run dangerous though every formula is right, as rows of condition, sentence and remedy.

Off-policy samples that nothing corrects, experts that are routed twice, weights rounded on the way to the sampler: a row looks at a
reading and at the framework's `RiskKeys`, and says what can happen with the user's own numbers and which keys prevent it. A file that
handles a risk gets no word of it; a file that corrects is warned of what a correction cannot repair only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.losses import Clip, Gspo, Luspo, Objective
from trimtab.dialects.engines import Recording, recording_in, truncation_words
from trimtab.dialects.given import Given
from trimtab.dialects.reading import Finding, Reading
from trimtab.dialects.risk_keys import RISK_KEYS, RiskKeys
from trimtab.dialects.sources.unknown import Unknown
from trimtab.dialects.topics import is_of_others, low_precision_keys, trains_on_earlier, truncations

MOST = 3
"""Risks that a page shows; those further down are notes."""
PAGE = "docs/risks.md"
EXPERTS = re.compile(
    r"\db?[-_]?a\d+(\.\d+)?b(?![a-z0-9])|moe(?![a-z])|mixtral|deepseek-?v[2-9]|deepseek-?r1|moonlight|kimi-?(k\d|linear)"
    r"|glm-?(4\.[5-9]|[5-9](?!\d*b))|gpt-?oss|qwen3-?next|minimax-?(m\d|text)|llama-?4|dbrx|jamba|nano-?v3|step-?3|(^|[-_])[lr]ing-",
    re.IGNORECASE,
)
"""Names of models with a mixture of experts: Qwen3-30B-A3B, DeepSeek-V3, gpt-oss-20b; not DeepSeek-R1-Distill-Qwen, not GLM-4-9B."""
EXPERT_COUNTS = ("num_experts", "n_routed_experts", "num_local_experts")
"""Names of a model's config.json, and of Megatron's flags, under which the number of experts stands."""
OFF_VALUES = (None, False, 0, "", "0", "none", "null", "false", "off", "disabled", "disable", "full")
"""Values that switch a key off; `full` is what a tuner is called that is none."""


def is_on(value: Any) -> bool:
    """Whether a value switches something on; one that is not known does not."""
    return not isinstance(value, Unknown) and (value.lower() if isinstance(value, str) else value) not in OFF_VALUES


def is_mixture(name: str) -> bool:
    """Whether a model by its name is a mixture of experts; a path counts by its last part."""
    last = name.rstrip("/").rpartition("/")[2]
    return "distill" not in last.lower() and EXPERTS.search(last) is not None


def experts_beside(file: str) -> bool | None:
    """Whether the config.json in the folder of a file is that of a mixture of experts; None where there is none of a model."""
    try:
        config = json.loads((Path(file).parent / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(config, dict) or not {"model_type", "architectures"} & set(cast("dict[str, Any]", config)):
        return None
    sections = (config, config.get("text_config") or {})
    counts = [section.get(name) for section in sections if isinstance(section, dict) for name in EXPERT_COUNTS]
    return any(isinstance(count, int) and count > 1 for count in counts)


@dataclass(frozen=True)
class RunFile:
    """The settings of one file, as the rows ask for them."""

    given: Given
    reading: Reading
    programs: tuple[str, ...]
    file: str

    @cached_property
    def keys(self) -> RiskKeys:
        """The framework's row."""
        return RISK_KEYS.get(self.given.dialect.name, RiskKeys())

    @cached_property
    def _by_name(self) -> Mapping[str, list[str]]:
        named: dict[str, list[str]] = {}
        for key in self.given.all_written:
            named.setdefault(key.rpartition(".")[2], []).append(key)
        return named

    def key(self, name: str) -> str | None:
        """What the user wrote for a key, of which `name` is the end; not in a section of a reward model or an evaluation."""
        same = self._by_name.get(name.rpartition(".")[2], [])
        return next((key for key in same if f".{key}".endswith(f".{name}") and not is_of_others(key)), None)

    def value(self, name: str) -> Any:
        """The value under a key: the user's, else the framework's default."""
        key = self.key(name)
        return self.keys.defaults.get(name) if key is None else self.given.value_of(key)

    def switched_on(self, *names: str) -> str | None:
        """The first of these keys that is on, as the user wrote it. `key=value` asks for one value."""
        for each in names:
            name, _, wanted = each.partition("=")
            value = self.value(name)
            if str(value).lower() == wanted.lower() if wanted else is_on(value):
                return self.key(name) or name
        return None

    def words(self, name: str) -> str:
        """A key with its value: `max_staleness 4`."""
        return f"{name.rpartition('.')[2]} {self.value(name)}"

    @cached_property
    def asynchronous(self) -> str | None:
        """The key or the program by which samples come from earlier weights."""
        program = next((each for each in self.programs if trains_on_earlier(each)), None)
        section = self.keys.async_section
        written = section and next((key for key in self.given.all_written if f".{key}".find(f".{section}.") >= 0), None)
        functions = [self.key(name) for name in self.keys.async_functions if trains_on_earlier(str(self.value(name)))]
        return self.switched_on(*self.keys.asynchronous) or program or written or next(iter(functions), None)

    @cached_property
    def mixture(self) -> str | None:
        """The mixture of experts that is trained, as the user calls it."""
        beside = experts_beside(self.file) if self.file else None
        if beside is not None:
            return "the model of config.json" if beside else None
        names = [value for key in self.keys.model if isinstance(value := _text(self.value(key)), str)]
        named = next((name.rstrip("/").rpartition("/")[2] for name in names if is_mixture(name)), None)
        counted = next((key for key in EXPERT_COUNTS if isinstance(n := self.value(key), int) and n > 1), None)
        return named or (self.words(counted) if counted else None)

    @property
    def rule(self) -> Correction | None:
        """The correction; None where it is not known."""
        return self.reading.rule

    @property
    def loss(self) -> Objective | None:
        """The loss, also by default."""
        defaults = self.reading.defaults
        return self.reading.loss or (defaults.loss if defaults else None)

    @cached_property
    def is_corrected(self) -> bool:
        """Whether anything bounds a token by the policy that sampled it; taken for granted where it is not known."""
        rule = self.rule
        if rule is None or rule.weighs or rule.centering is not None:
            return True
        if any("behavior" in (gate.pair or rule.pair) for gate in rule.gates):
            return True
        return rule.policies == "bypass" and not isinstance(self.loss, Clip | Gspo | Luspo)

    @property
    def is_bypass(self) -> bool:
        """Whether the loss divides by the sampler's log-probs."""
        return self.rule is not None and self.rule.policies == "bypass"

    @property
    def is_uncorrected(self) -> bool:
        """Whether nothing looks at the sampler: no weight, no gate, no ratio."""
        return not self.is_corrected and not self.is_bypass

    @property
    def recording(self) -> Recording | None:
        """What the sampler's log-probs are; None where it is not known."""
        return recording_in(self.given)

    @property
    def age(self) -> str:
        """How old samples may be, in the user's numbers."""
        for name, words in self.keys.age.items():
            value = self.value(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                plural = words.replace("updates", "update") if value == 1 else words
                return f"Samples are {plural.format(f'{value:g}')} ({self.words(name)})"
        return "Samples come from earlier weights"

    def remedy(self, settings: Mapping[str, Any]) -> str:
        """Settings as the user would write them."""
        if not self.keys.is_command:
            *front, last = (f"{key}={_plain(value)}" for key, value in settings.items())
            return f"{', '.join(front)} and {last}" if front else last
        flags = [f"--{key.replace('_', '-') if self.keys.dashes else key}" for key in settings]
        return " ".join(
            flag if v is True else f"{flag} {_plain(v)}" for flag, v in zip(flags, settings.values(), strict=True)
        )

    @property
    def correct_it(self) -> str:
        """The keys that correct."""
        keys = self.keys
        kept = {
            key: value for key, value in keys.correct.items() if self.is_bypass or (key, value) != (keys.bypass, False)
        }
        return f"Correct with {self.remedy(kept)}." if kept else keys.without


def _text(value: Any) -> Any:
    return (value.written or value.name) if isinstance(value, Unknown) else value


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_plain, cast("list[Any]", value)))
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


Told = tuple[str, str] | None
"""The key that a risk is about, and the sentences; None where there is none."""


@dataclass(frozen=True)
class Risk:
    """A row: what it is called on the page of risks, and what it says of a run."""

    anchor: str
    title: str
    told: Callable[[RunFile], Told]
    topic: str = ""
    """The note of `topics` that it stands for: age, sampling or bits."""


def _asynchronous(run: RunFile) -> Told:
    if not run.asynchronous or not run.is_uncorrected:
        return None
    return run.asynchronous, (
        f"{run.age}, and no weight or gate looks at the policy that sampled them: the clip compares with the trainer's own pass and does "
        f"not see the sampler. {run.correct_it}"
    )


def _clip_only(run: RunFile) -> Told:
    loss = run.loss
    if not run.is_bypass or run.is_corrected or not isinstance(loss, Clip | Gspo | Luspo):
        return None
    is_dual = getattr(loss, "dual", None) is not None
    if is_dual and not run.asynchronous:
        return None
    age = f"{run.age}, and the clip" if run.asynchronous else "The clip"
    bound = (
        f"Mismatch and staleness use up [{1 - loss.low:g}, {1 + loss.high:g}] before the first update."
        if is_dual
        else "It leaves tokens unbounded that the policy has moved towards and that did badly (ratio far above 1, advantage below 0)."
    )
    return run.asynchronous or run.keys.bypass or run.given.dialect.title, (
        f"{age} is the only thing that looks at the ratio of trainer to sampler. {bound} {run.keys.without or run.correct_it}"
    )


def _experts(run: RunFile) -> Told:
    if run.mixture is None or run.is_corrected or run.switched_on(*run.keys.replay):
        return None
    replay = f"Replay the sampler's routing: {run.remedy(run.keys.replayed)}. " if run.keys.replayed else ""
    correct = run.correct_it
    key = next((key for name in run.keys.model if (key := run.key(name))), "") or run.mixture
    return key, (
        f"{run.mixture} is a mixture of experts, and sampler and trainer may choose different experts for the same token: log-probs then "
        f"differ by jumps. Nothing replays the routing or corrects; either helps. {replay}{correct}"
    )


def _lora(run: RunFile) -> Told:
    key = run.switched_on(*run.keys.lora)
    if key is None or run.is_corrected:
        return None
    return key, (
        f"LoRA ({key.rpartition('.')[2]} {run.given.value_of(key, 'by default')}): the sampler gets weights merged and rounded, or an "
        "adapter that may not arrive, so its log-probs are not the trainer's, and nothing corrects. Compare both once with `trimtab "
        f"parity`. {run.correct_it}"
    )


def _few_bits(run: RunFile) -> Told:
    keys = low_precision_keys(run.given)
    if not keys or run.is_corrected:
        return None
    values = {key.rpartition(".")[2]: _plain(_text(run.given.value_of(key))).rpartition("/")[2] for key in keys[:2]}
    named = ", ".join(f"{name} {value}" for name, value in values.items())
    return ", ".join(keys), (
        f"Weights, caches or matrix products are in low precision ({named}): sampler and trainer give the same token two log-probs, fresh "
        f"samples included, and nothing corrects. {run.correct_it}"
    )


def _kept_cache(run: RunFile) -> Told:
    keys = run.keys
    if run.is_corrected or not keys.cache_kept or not all(run.switched_on(each) for each in keys.cache_kept):
        return None
    if any(str(run.value(name)) == str(value) for name, value in keys.cache_renewed.items()):
        return None
    name = keys.cache_kept[-1].partition("=")[0]
    return run.key(name) or name, (
        "Weights are exchanged while answers are sampled, and the KV cache is kept: tokens after the update attend to keys of older "
        "weights, so no policy of the trainer has sampled them, and nothing corrects. "
        f"Set {run.remedy(keys.cache_renewed)}."
    )


def _partial(run: RunFile) -> Told:
    rule, key = run.rule, run.switched_on(*run.keys.partial)
    if key is None or run.key(key) is None or rule is None or run.switched_on(*run.keys.partial_masked):
        return None
    by_weight = rule.weight is not None and rule.weight.level in ("sequence", "geometric")
    by_gate = any(gate.level == "sequence" and gate.agg == "sum" and gate.metric != "age" for gate in rule.gates)
    if not (by_weight or by_gate or (run.is_bypass and isinstance(run.loss, Gspo | Luspo))):
        return None
    masked = (
        f", or mask the older tokens with {run.remedy({run.keys.partial_masked[0]: True})}"
        if run.keys.partial_masked
        else ""
    )
    return key, (
        "Partial rollouts: one answer has several samplers, and the ratio of its sequence multiplies ratios to all of them, so the answer "
        f"finished late has the widest ratio. Use a rule by token{masked}."
    )


def _truncated(run: RunFile) -> Told:
    cut = truncations(run.given)
    if not cut or run.switched_on(*run.keys.support_replay) or _is_cut_alike(run.recording):
        return None
    named = " and ".join(f"{key.rpartition('.')[2]} {value}" for key, value in cut.items())
    off = " and ".join(
        "top_k=-1" if "top_k" in key else f"{key.rpartition('.')[2]}={'0' if 'min_p' in key else '1'}" for key in cut
    )
    replay = (
        f", or replay the sampler's token set with {run.remedy({run.keys.support_replay[0]: True})}"
        if run.keys.support_replay
        else ""
    )
    return ", ".join(cut), f"Truncated sampling ({named}): {truncation_words(run.recording)} Sample with {off}{replay}."


def _is_cut_alike(recording: Recording | None) -> bool:
    """Whether engine and trainer cut the same tokens off."""
    mode = recording.returned if recording else None
    return recording is not None and recording.truncates and mode is not None and mode.cut == "renormalised"


def _unrecorded(run: RunFile) -> Told:
    key = run.switched_on(*run.keys.unrecorded)
    if key is None or run.rule is None or run.rule.weighs or run.rule.gates:
        return None
    name = run.keys.unrecorded[0].partition("=")[0]
    return key, (
        "The sampler's log-probs are not recorded: the training–inference mismatch is not measured, and no correction could use it. "
        f"Set {run.remedy({name: run.keys.recorded})}."
    )


def _micro_batches(run: RunFile) -> Told:
    values = [run.value(name) for name in run.keys.micro_batches]
    if run.is_corrected or run.is_bypass or len(values) != 2 or run.switched_on(*run.keys.dynamic_batches):
        return None
    if not all(isinstance(value, int) and value > 0 for value in values) or values[0] == values[1]:
        return None
    scored, trained = run.keys.micro_batches
    equal = run.remedy({run.key(scored) or scored: values[1]})
    return run.key(scored) or scored, (
        f"The pass for old log-probs has micro-batches of {values[0]}, the update of {values[1]}: two shapes round differently, so the "
        f"ratio of the first update is not 1, most of all for a mixture of experts. Set {equal}, or use "
        f"batch-invariant kernels ({trained.rpartition('.')[2]} stays {values[1]})."
    )


def _unbounded(run: RunFile) -> Told:
    rule, why = run.rule, run.asynchronous or run.mixture
    if rule is None or rule.weight is None or not rule.weighs or why is None or _is_bounded(rule.weight, rule.gates):
        return None
    what = (
        f"{run.age}, and"
        if run.asynchronous
        else f"{run.mixture} is a mixture of experts, whose log-probs differ by jumps, and"
    )
    named = [
        run.given.place(key.label)
        for key in run.given.dialect.keys
        if key.part == "correction" and run.given.has(key.label)
    ]
    unit = "token" if rule.weight.level == "token" else "sequence"
    return next(iter(named), why), (
        f"{what} nothing bounds the weight of a {unit} from above: a few of them can own the step. {run.correct_it}"
    )


def _is_bounded(weight: Weight, gates: tuple[Gate, ...]) -> bool:
    """Whether a weight has an end above, or a gate of the same unit takes out what is far above 1."""
    of_token = weight.level == "token"
    gated = any(
        gate.upper is not None and (gate.level == "token") == of_token and gate.metric != "age" for gate in gates
    )
    return gated or weight.upper is not None or weight.bounds is not None


RISKS = (
    Risk("asynchronous-rl-and-nothing-corrects", "Asynchronous RL, and nothing corrects", _asynchronous, "age"),
    Risk("two-policies-and-only-the-clip", "Two policies, and only the clip", _clip_only, "age"),
    Risk("mixture-of-experts-without-routing-replay", "Mixture of experts without routing replay", _experts),
    Risk("truncated-sampling", "Truncated sampling (top-p, top-k, min-p)", _truncated, "sampling"),
    Risk("few-bits", "Few bits: FP8, INT4, a quantised KV cache", _few_bits, "bits"),
    Risk("lora", "LoRA: merged weights and adapter sync", _lora),
    Risk("weights-without-a-bound", "Importance weights without a bound", _unbounded),
    Risk("kv-cache-kept-over-an-update", "KV cache kept over a weight update", _kept_cache),
    Risk("partial-rollouts-under-a-sequence-rule", "Partial rollouts under a sequence rule", _partial),
    Risk("log-probs-not-recorded", "Log-probs of the sampler not recorded", _unrecorded),
    Risk("unequal-micro-batches", "Unequal micro-batches of the two passes", _micro_batches),
)
"""The rows, the gravest first. A clip of tokens on a sequence's ratio is the twelfth: `bounds.clip_findings`."""


def risk_findings(run: RunFile) -> Iterator[tuple[Finding, str]]:
    """The risks of a run in their order, each with the topic whose note it stands for: the first `MOST` as risks, the rest as notes."""
    told = [(risk, said) for risk in RISKS if (said := risk.told(run)) is not None]
    most = MOST - sum(each.level == "risk" for each in run.reading.findings)
    correction = run.correct_it
    for place, (risk, (key, text)) in enumerate(told):
        if any(correction in earlier for _, (_, earlier) in told[:place]):
            text = text.replace(correction, "The same correction bounds this too.")
        level = "risk" if place < most else "note"
        source = run.recording.source if risk.topic == "sampling" and run.recording else ""
        yield Finding(key, level, f"{text} See {PAGE}#{risk.anchor}.", source=source), risk.topic
