"""Risks: each of the eighteen files that were dangerous and calm has one, and no file that handles its risk has any."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trimtab.dialects import Reading, read
from trimtab.dialects.engines import MODES, RECORDINGS, recording_of, truncation_words
from trimtab.dialects.recognise import recognise
from trimtab.dialects.risk_keys import RISK_KEYS
from trimtab.dialects.risks import MOST, RISKS, RunFile, experts_beside, is_mixture
from trimtab.dialects.sources.opening import open_file

FILES = Path(__file__).parent / "risks"
PAGE = Path(__file__).parents[2] / "docs/risks.md"
ANCHORS = {risk.anchor for risk in RISKS}


def files(kind: str) -> list[Path]:
    return sorted(each for each in (FILES / kind).iterdir() if each.stem != "nemo_base")


def reading_of(path: Path) -> Reading:
    opened = open_file(path)
    return read(recognise(opened).framework, opened)


def risks_of(path: Path) -> list[str]:
    """The anchors of the risks, or `sequence-clip`."""
    told = [each.text for each in reading_of(path).findings if each.level == "risk"]
    return [text.rpartition("#")[2].rstrip(".") if "#" in text else "sequence-clip" for text in told]


TOLD = {
    "areal_gspo": ["sequence-clip"],
    "areal_lora_moe": ["asynchronous-rl-and-nothing-corrects", "mixture-of-experts-without-routing-replay", "lora"],
    "miles_fully_async": ["asynchronous-rl-and-nothing-corrects"],
    "nemo_gspo_deepscaler": ["sequence-clip"],
    "nemo_qwen30ba3b": ["mixture-of-experts-without-routing-replay"],
    "roll_30ba3b_agentic": ["mixture-of-experts-without-routing-replay", "truncated-sampling"],
    "roll_async": ["asynchronous-rl-and-nothing-corrects", "truncated-sampling"],
    "roll_lora": ["truncated-sampling", "lora"],
    "skyrl_30b_a3b_lora": ["mixture-of-experts-without-routing-replay", "lora"],
    "skyrl_async_gsm8k": ["asynchronous-rl-and-nothing-corrects"],
    "skyrl_gspo_gsm8k": ["sequence-clip"],
    "slime_35b_a3b_swe": ["mixture-of-experts-without-routing-replay"],
    "slime_fully_async": ["asynchronous-rl-and-nothing-corrects"],
    "swift_moe_lora": ["mixture-of-experts-without-routing-replay", "lora"],
    "swift_qlora": ["few-bits", "lora"],
    "verl_mimo_fully_async": ["two-policies-and-only-the-clip"],
    "verl_nemotron_nano_v3": ["mixture-of-experts-without-routing-replay", "unequal-micro-batches"],
    "verl_qwen3_30b_a3b_fsdp": ["mixture-of-experts-without-routing-replay"],
}
"""The eighteen, as their frameworks' examples write them, less what concerns nobody here."""


@pytest.mark.parametrize("path", files("dangerous"), ids=lambda path: path.stem)
def test_a_dangerous_file_is_told_its_risks(path: Path):
    assert risks_of(path) == TOLD[path.stem]


def test_all_eighteen_are_there():
    assert {each.stem for each in files("dangerous")} == set(TOLD)
    assert len(TOLD) == 18


@pytest.mark.parametrize("path", files("handled"), ids=lambda path: path.stem)
def test_a_file_that_handles_its_risk_is_left_in_peace(path: Path):
    assert risks_of(path) == []


def test_more_than_twenty_files_handle_theirs():
    assert len(files("handled")) >= 20


PARTLY = {
    "areal_fp8": ["few-bits"],
    "areal_lora": ["lora"],
    "areal_tau2_30b": ["asynchronous-rl-and-nothing-corrects", "mixture-of-experts-without-routing-replay"],
    "miles_int4": ["mixture-of-experts-without-routing-replay", "few-bits"],
    "nemo_cispo_async_lag1": ["weights-without-a-bound"],
    "nemo_fp8_rollouts": ["few-bits"],
    "prime_rl_30b_a3b": [],
    "prime_rl_lora": [],
    "roll_off_policy": ["asynchronous-rl-and-nothing-corrects"],
    "slime_fp8": ["few-bits"],
    "slime_int4": [],
    "trl_async_grpo": ["two-policies-and-only-the-clip"],
    "verl_deepseek_v4_flash": ["few-bits"],
}
"""Files whose risky keys were named and no more; what corrects (prime-rl's loss, --use-tis) has none."""


@pytest.mark.parametrize("path", files("partial"), ids=lambda path: path.stem)
def test_a_file_whose_keys_were_only_named(path: Path):
    assert risks_of(path) == PARTLY[path.stem]


@pytest.mark.parametrize("path", files("dangerous"), ids=lambda path: path.stem)
def test_at_most_three_risks_lead_the_findings_and_each_says_a_remedy(path: Path):
    told = [each for each in reading_of(path).findings if each.level == "risk"]
    assert 1 <= len(told) <= MOST
    for each in told:
        assert any(word in each.text for word in ("Correct with", "Set ", "set ", "Sample with", "same correction")), (
            each.text
        )
        assert "#" not in each.text or each.text.rpartition("#")[2].rstrip(".") in ANCHORS


def test_a_fourth_risk_is_a_note(tmp_path: Path):
    file = tmp_path / "run.yaml"
    more = "  logprob_batch_size: 2\n  generation:\n    top_p: 0.9\n    vllm_cfg:\n      precision: fp8\n"
    text = (
        (FILES / "dangerous/nemo_qwen30ba3b.yaml").read_text(encoding="utf-8").replace("  logprob_batch_size: 4\n", "")
    )
    text = text.replace(
        "  generation:\n    backend: vllm\n    temperature: 1.0\n    top_p: 1.0\n", f"{more}    backend: sglang\n"
    )
    file.write_text(text.replace("loss_fn:", "  async_grpo:\n    enabled: true\nloss_fn:"), encoding="utf-8")
    found = [each for each in reading_of(file).findings if "docs/risks.md" in each.text]
    assert [each.level for each in found] == ["risk", "risk", "risk", "note", "note"][: len(found)]
    assert len(found) > MOST


def nested(settings: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield from settings.items()


@pytest.mark.parametrize("name", [name for name, row in RISK_KEYS.items() if row.correct])
def test_the_correction_that_a_risk_proposes_is_read_as_one(name: str):
    reading = read(name, dict(nested(dict(RISK_KEYS[name].correct))))
    assert reading.correction is not None
    assert reading.correction.weighs or reading.correction.gates
    assert RunFile(*_given(name, dict(RISK_KEYS[name].correct)), (), "").is_corrected


def _given(name: str, settings: dict[str, Any]) -> tuple[Any, Reading]:
    from trimtab.dialects.lookup import look_up
    from trimtab.dialects.registry import dialect_of

    return look_up(dialect_of(name), settings, documented=False, width=None, partial=True), read(name, settings)


@pytest.mark.parametrize(
    "name",
    ["Qwen/Qwen3-30B-A3B", "qwen3_30b_a3b", "30BA3B", "/models/Moonlight-16B-A3B-Instruct/", "deepseek-ai/DeepSeek-V3", "gpt-oss-20b",
     "mistralai/Mixtral-8x7B", "OLMoE-1B-7B", "GLM-4.5-Air", "GLM-5", "Kimi-K2-Instruct", "Qwen1.5-MoE-A2.7B", "MiniMax-M2", "DeepSeek-R1",
     "Ling-1T", "Llama-4-Scout-17B-16E"],
)  # fmt: skip
def test_a_mixture_of_experts_is_known_by_its_name(name: str):
    assert is_mixture(name)


@pytest.mark.parametrize(
    "name",
    ["DeepSeek-R1-Distill-Qwen-7B", "THUDM/GLM-4-9B-0414", "Qwen/Qwen3-32B", "Qwen3-30B-A3B/dense-student-4B", "moenchengladbach-7b",
     "Llama-3.1-8B", "nvidia/nemotron-3-8b-base-4k", "Olmo-3-7B", "Qwen2.5-Math-7B", "training-7b"],
)  # fmt: skip
def test_a_dense_model_is_not(name: str):
    assert not is_mixture(name)


@pytest.mark.parametrize(("config", "experts"), [
    ({"model_type": "qwen3_moe", "num_experts": 128}, True),
    ({"model_type": "qwen3_vl_moe", "text_config": {"num_experts": 128}}, True),
    ({"model_type": "qwen3"}, False),
    ({"learning_rate": 1e-6}, None),
    ([1], None),
])  # fmt: skip
def test_the_config_beside_the_file_decides(config: Any, experts: bool | None, tmp_path: Path):
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert experts_beside(str(tmp_path / "run.yaml")) is experts


def test_a_dense_config_overrules_the_name(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}', encoding="utf-8")
    run = tmp_path / "run.sh"
    run.write_bytes((FILES / "dangerous/verl_qwen3_30b_a3b_fsdp.sh").read_bytes())
    assert risks_of(run) == []


def test_the_page_has_every_risk_and_every_framework():
    text = PAGE.read_text(encoding="utf-8")
    headings = {line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")}
    assert {risk.title for risk in RISKS} <= headings
    for row in RISK_KEYS.values():
        for key in (*row.asynchronous, *row.replay, *row.lora, *row.correct):
            assert key.partition("=")[0] in text, key


def test_every_recording_has_its_source_and_a_mode_of_the_engine():
    for each in RECORDINGS:
        assert ":" in each.source or "no line" in each.source
        assert each.mode is None or each.returned is not None, each
    assert {mode.engine for mode in MODES} == {"vLLM", "SGLang", "HF", "TensorRT-LLM"}


def test_what_truncation_does_depends_on_the_engine():
    assert "the mass that was kept" in truncation_words(recording_of("verl", "vllm"))
    assert "the ratio is 1" in truncation_words(recording_of("verl", "sglang"))
    assert "Recorded over that part" in truncation_words(recording_of("verl", "trtllm"))
    assert recording_of("openrlhf").mode is None  # pyright: ignore[reportOptionalMemberAccess]


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("vllm", "vLLM (processed_logprobs) returns log-probs at the temperature"),
        ("sglang", "SGLang (default)"),
        ("trtllm", "not known here"),
    ],
)
def test_a_temperature_is_told_with_what_the_engine_records(engine: str, said: str, tmp_path: Path):
    file = tmp_path / "run.sh"
    text = (FILES / "handled/verl_distill_dense.sh").read_text(encoding="utf-8")
    text = text.replace("rollout.name=vllm", f"rollout.name={engine} actor_rollout_ref.rollout.temperature=0.7")
    file.write_text(text, encoding="utf-8")
    [note] = [each.text for each in reading_of(file).findings if "temperature 0.7" in each.text]
    assert said in note


def test_a_raw_log_prob_against_a_tempered_pass_is_told(tmp_path: Path):
    file = tmp_path / "run.sh"
    text = (FILES / "handled/skyrl_fully_async_gsm8k.sh").read_text(encoding="utf-8")
    file.write_text(text.replace("$@", "generator.sampling_params.temperature=0.7 $@"), encoding="utf-8")
    assert any("they are not comparable" in each.text for each in reading_of(file).findings)
