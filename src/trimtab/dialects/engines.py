"""What the recorded log-prob of a token means: by engine and mode, and by framework.

Where temperature and truncation enter the number that an engine returns decides whether a ratio of trainer to sampler is 1 on fresh
samples. Engines: vLLM 0.32.0 and transformers 5.12 as read, SGLang 0.5.21 as measured against transformers to 1e-6. Frameworks: as read
in their sources of July and August 2026. A cell is None where it is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from trimtab.dialects.given import Given

Engine = Literal["vLLM", "SGLang", "HF", "TensorRT-LLM"]
Cut = Literal["renormalised", "full softmax"]


@dataclass(frozen=True)
class EngineMode:
    """What an engine returns as the log-prob of a sampled token."""

    engine: Engine
    mode: str
    temperature: bool | None
    """Whether the logits are divided by it first."""
    cut: Cut | None
    """Under top-p, top-k or min-p: over the tokens that are kept, or over the vocabulary."""
    penalties: bool | None
    prompt: Literal["raw", "as sampled"] | None
    """The log-probs of a prompt."""
    source: str


MODES = (
    EngineMode("vLLM", "raw_logprobs (default)", False, "full softmax", False, "raw", "config/model.py:287"),
    EngineMode("vLLM", "processed_logprobs", True, "renormalised", True, "raw",
        "v1/sample/sampler.py:80-106, ops/topk_topp_sampler.py:274-279; prompt: gpu_model_runner.py:5385-5388"),
    EngineMode("SGLang", "default", True, "full softmax", True, "raw", "layers/sampler.py:246-262, and measured"),
    EngineMode("SGLang", "SGLANG_RETURN_ORIGINAL_LOGPROB=1", False, "full softmax", True, "raw", "measured"),
    EngineMode("SGLang", "return_sampling_mask (needs top_k)", True, "renormalised", True, None, "measured"),
    EngineMode("HF", "generate, scores", True, "renormalised", True, None, "generation/utils.py:3222-3232"),
    EngineMode("HF", "generate, logits", False, "full softmax", False, None, "generation/utils.py:3222-3232"),
    EngineMode("TensorRT-LLM", "logprobs", None, None, None, None, "its pages do not say"),
)  # fmt: skip


@dataclass(frozen=True)
class Recording:
    """A framework on an engine: which mode it asks for, and what the trainer's pass does with its logits."""

    framework: str
    engine: Engine
    mode: str | None
    """A mode of `MODES`; None where the framework leaves it to the user or it is not known."""
    tempered: bool | None
    """Whether the trainer divides its logits by the temperature."""
    source: str
    """The framework's lines: the engine's mode; the trainer's pass."""
    truncates: bool = False
    """Whether the trainer's pass also cuts off what top-p and top-k do."""

    @property
    def returned(self) -> EngineMode | None:
        """The row of the engine's mode."""
        same = (each for each in MODES if (each.engine, each.mode) == (self.engine, self.mode))
        return next(same, None)


RAW, PROCESSED, SGLANG = "raw_logprobs (default)", "processed_logprobs", "default"
RECORDINGS = (
    Recording("verl", "vLLM", PROCESSED, True, "trainer/config/rollout/rollout.yaml:93; engine/fsdp/transformer_impl.py:1357"),
    Recording("verl", "SGLang", SGLANG, True, "async_sglang_server.py:628, 661-663; engine/fsdp/transformer_impl.py:1357"),
    Recording("trl", "vLLM", PROCESSED, True, "generation/vllm_generation.py:361, scripts/vllm_serve.py:271; grpo_trainer.py:1519"),
    Recording("skyrl", "vLLM", RAW, True, "no line sets the mode; workers/model_wrapper.py:334"),
    Recording("slime", "SGLang", SGLANG, True, "rollout/sglang_rollout.py:178, 206-208; backends/megatron_utils/loss.py:133"),
    Recording("miles", "SGLang", SGLANG, True, "rollout/sglang_rollout.py:177, 235-237; loss_hub/logit_processors.py:55"),
    Recording("areal", "vLLM", RAW, True, "engine/vllm_remote.py:76 sets no mode; fsdp_engine.py:2093"),
    Recording("areal", "SGLang", SGLANG, True, "engine/sglang_remote.py:86, 132-133; fsdp_engine.py:2093"),
    Recording("nemo-rl", "vLLM", PROCESSED, True, "grpo_math_1B.yaml:415 (five VLM recipes say raw), vllm_worker.py:599; "
        "distributed/model_utils.py:440, 896", truncates=True),
    Recording("nemo-rl", "SGLang", SGLANG, True, "sglang_generation.py:797, 803; distributed/model_utils.py:440, 896", truncates=True),
    Recording("prime-rl", "vLLM", PROCESSED, True, "configs/inference.py:611-613; trainer/models/layers/lm_head.py:54, 135"),
    Recording("openrlhf", "vLLM", None, True, "cli/train_ppo_ray.py:78: processed with a correction, else raw; models/utils.py:139-141"),
    Recording("roll", "vLLM", RAW, False, "strategy/vllm_strategy.py:475 sets no mode; utils/functionals.py:214-218"),
    Recording("roll", "SGLang", SGLANG, False, "strategy/sglang_strategy.py:239, 599-606; utils/functionals.py:214-218"),
    Recording("ms-swift", "vLLM", PROCESSED, True, "rlhf_trainers/rollout_mixin.py:499; grpo_trainer.py:1478, 1571"),
    Recording("open-instruct", "vLLM", PROCESSED, True, "vllm_utils.py:1284; grpo_utils.py:560"),
)  # fmt: skip
"""Read at verl 1dda039b9, TRL f2cd57710, SkyRL a9564572e, slime 624b824a8, miles 31f1ca961, AReaL cbff54d64, NeMo-RL 7ea279abf, prime-rl
559b44772, OpenRLHF 3c3be623, ROLL 8eb27cc2, ms-swift 3602360a5, open-instruct e6c3044aa. Verify a line before it is held against anyone."""
ENGINE_KEYS = (
    "rollout.name",
    "inference_engine.backend",
    "generation.backend",
    "allocation_mode",
    "strategy_args.strategy_name",
)
"""Keys that name the engine."""


def recording_of(framework: str, named: str = "") -> Recording | None:
    """How a framework records on the engine of that name; the one it takes by default where none is named."""
    rows = [each for each in RECORDINGS if each.framework == framework]
    said = next((each for each in rows if each.engine.lower() in named.lower()), None)
    is_other = any(engine in named.lower() for engine in ("sglang", "vllm", "trt", "tensorrt", "hf"))
    return said or (rows[0] if rows and not is_other else None)


def recording_in(given: Given) -> Recording | None:
    """How the run of these settings records."""
    named = [str(value) for key, value in given.all_written.items() if f".{key}".endswith(_ENGINE_ENDS)]
    return recording_of(given.dialect.name, " ".join(named))


_ENGINE_ENDS = tuple(f".{name}" for name in ENGINE_KEYS)


def temperature_words(recording: Recording | None) -> str:
    """Whether the log-probs of engine and trainer are of the same temperature."""
    mode = recording.returned if recording else None
    if recording is None or mode is None or mode.temperature is None or recording.tempered is None:
        return "Whether the sampler's log-probs are divided by the temperature is not known here: check that both sides are."
    engine = (
        f"{recording.engine} ({mode.mode}) returns log-probs {'at' if mode.temperature else 'without'} the temperature"
    )
    trainer = f"the trainer's pass {'divides its logits by it' if recording.tempered else 'does not divide by it'}"
    if mode.temperature == recording.tempered:
        return f"{engine}, and {trainer}: comparable ({recording.source})."
    return f"{engine}, and {trainer}: at a temperature other than 1 they are not comparable ({recording.source})."


def truncation_words(recording: Recording | None) -> str:
    """What truncated sampling does to the ratio of trainer to sampler."""
    mode = recording.returned if recording else None
    if recording is None or mode is None or mode.cut is None:
        return (
            "tokens come from a part of the vocabulary. Recorded over that part, every ratio is the mass that was kept; recorded over the "
            "whole, every ratio is 1 and no correction can see it."
        )
    if mode.cut == "renormalised":
        return (
            f"{recording.engine} returns log-probs over the tokens that are kept, and the trainer's run over the whole vocabulary: the "
            "ratio of a fresh token is the mass that was kept, below 1."
        )
    own = "the trainer's run over the tokens that are kept" if recording.truncates else "so do the trainer's"
    seen = (
        "the ratio is off by the mass that was kept"
        if recording.truncates
        else "the ratio is 1, and no correction can see it"
    )
    return f"{recording.engine} returns log-probs over the whole vocabulary and {own}, while tokens come from a part of it: {seen}."
