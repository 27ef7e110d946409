"""What vLLM is refused before it starts; none of this needs it installed."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest

from tests.train.engines.vllm_models import LONGEST, policy, rollout
from trimtab.config.training import Rollout, Train
from trimtab.errors import ConfigError
from trimtab.installed import install_command
from trimtab.train.engines.vllm import requirements
from trimtab.train.engines.vllm.server import command_flags


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(requirements, "on_cpu", lambda: True)


@pytest.mark.usefixtures("installed")
def test_a_policy_with_heads_of_32_is_taken_and_one_of_16_is_told_what_to_set() -> None:
    requirements.check_run(policy(0).config, rollout())
    with pytest.raises(ConfigError, match=r"got 16. For the tiny policy set model.tiny.heads=2"):
        requirements.check_run(policy(0, num_attention_heads=4, num_key_value_heads=4).config, rollout())


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"precision": "int8"}, "fp32 or bf16, got int8"),
        ({"vllm": {"transfer": "nccl"}}, "needs rollout.engine vllm-server, got vllm"),
        ({"engine": "vllm-server", "vllm": {"transfer": "ipc"}}, "needs GPUs, got none"),
    ],
)
def test_what_it_cannot_do_here_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        requirements.check_run(policy(0).config, rollout(**changes))


@pytest.mark.usefixtures("installed")
def test_bf16_is_refused_where_the_processor_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "bf16_product", lambda: -4)
    with pytest.raises(ConfigError, match="ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"):
        requirements.check_run(policy(0).config, rollout(precision="bf16"))
    monkeypatch.setattr(requirements, "bf16_product", lambda: 0)
    requirements.check_run(policy(0).config, rollout(precision="bf16"))


def test_without_vllm_the_way_to_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=re.escape(install_command("vllm"))):
        requirements.check_run(policy(0).config, rollout())
    requirements.check_run(
        policy(0).config, rollout(engine="vllm-server", servers=["http://far:8000"])
    )  # it is theirs to have


def test_addresses_belong_to_the_engine_that_uses_them() -> None:
    with pytest.raises(ConfigError, match=r"rollout.servers needs rollout.engine vllm-server or sglang-server, got hf"):
        Rollout(servers=("http://far:8000",))
    settings = {"rollout": {"engine": "vllm-server", "servers": ["http://far:8000"]}}
    assert Train.from_settings(settings).rollout.servers == ("http://far:8000",)


def test_an_engine_is_built_for_the_longest_sequence_and_one_request_more_than_its_slots() -> None:
    options = requirements.engine_options(policy(0).config, rollout(slots=4))
    assert (options["max_model_len"], options["max_num_seqs"]) == (LONGEST, 5)
    assert options["load_format"] == "dummy"
    shorter = requirements.engine_options(policy(0).config, rollout(vllm={"longest": 32}))
    assert shorter["max_model_len"] == 32


def test_options_become_flags() -> None:
    options = {"max_model_len": 8, "enforce_eager": True, "enable_chunked_prefill": False, "config": {"backend": "x"}}
    assert command_flags(options) == [
        "--max-model-len", "8", "--enforce-eager", "--no-enable-chunked-prefill", "--config", '{"backend": "x"}',
    ]  # fmt: skip
