"""trimtab inside AReaL: its FSDP actor on its own CPU platform, log-probs, advantages and update in its order."""

from __future__ import annotations

import functools
import inspect
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

os.environ["AREAL_CACHE_DIR"] = os.path.join(tempfile.gettempdir(), "areal")  # made on import

from peers import absent

import trimtab
from tests.plugins.comparison import Step, same_metrics, same_step
from tests.plugins.recording import RecordStandIn
from tests.plugins.tiny import Rollouts, rollouts, save_model
from trimtab.config.plan import Plan
from trimtab.errors import ConfigError

LOGGERS_AND_SERVERS = [
    "uvloop",
    "swanlab",
    "wandb",
    "trackio",
    "tensorboardX",
    "flask",
    "werkzeug",
    "openai",
    "numba",
    "torchdata",
    "PIL",
    "pybase64",
    "datasets",
]
with absent(*LOGGERS_AND_SERVERS, asked_by=("areal",)):
    from areal.api.cli_args import MicroBatchSpec, OptimizerConfig, PPOActorConfig, RejectionSamplingConfig
    from areal.api.io_struct import FinetuneSpec
    from areal.utils import stats_tracker

    from trimtab.plugins import areal as plugin

DATA = rollouts()
MASK = {"level": "token", "action": "mask", "metric": "ratio", "lower": 0.8, "upper": 1.25}
CLAMP = {"level": "token", "action": "clamp", "metric": "ratio", "upper": 1.1}
GEOMETRIC = {"level": "sequence", "action": "mask", "metric": "ratio", "agg": "mean", "lower": 0.95, "upper": 1.05}
K2 = {"level": "sequence", "action": "mask", "metric": "kl_k2", "agg": "mean", "upper": 0.01}


def configuration(path: Path, rejection: dict[str, Any] | None = None, rows: int = 2, **settings: Any) -> Any:
    """An actor of plain descent, so that the change of the weights is the gradient."""
    given = {
        "experiment_name": "plugins",
        "trial_name": "test",
        "path": str(path),
        "dtype": "float32",
        "grad_reduce_dtype": "float32",
        "attn_impl": "eager",
        "gradient_checkpointing": False,
        "disable_dropout": True,
        "backend": "fsdp:d1",
        "optimizer": OptimizerConfig(
            type="sgd",
            lr=0.3,
            weight_decay=0.0,
            gradient_clipping=1e9,
            warmup_steps_proportion=0.0,
            lr_scheduler_type="constant",
        ),
        "mb_spec": MicroBatchSpec(n_mbs=8 // rows),
        "ppo_n_minibatches": 1,
        "use_decoupled_loss": True,
        "recompute_logprob": True,
        "kl_ctl": 0.0,
        "rejection_sampling": None if rejection is None else RejectionSamplingConfig(**rejection),
    }
    return PPOActorConfig(**(given | settings))


class Actor:
    """One engine, taken back to its first weights for each step."""

    def __init__(self, path: Path) -> None:
        self.path = path
        config = plugin.with_plan(configuration(path), Plan())
        self.engine = plugin.FSDPActor(config)
        self.engine.create_process_group()
        self.engine.initialize(None, FinetuneSpec(total_train_epochs=1, dataset_size=64, train_batch_size=8))
        self.first = {name: each.detach().clone() for name, each in self.engine.model.named_parameters()}

    def gradient(self) -> torch.Tensor:
        found = [each.grad for each in self.engine.model.parameters()]
        return torch.cat(
            [(each.full_tensor() if hasattr(each, "full_tensor") else each).flatten() for each in found]
        ).clone()

    def step(self, config: Any, plan: Any = None, data: Rollouts = DATA) -> Step:
        """One update by AReaL's own actor: without a plan its own loss, with one ours."""
        from areal.trainer.ppo.actor import PPOActor

        engine = self.engine
        with torch.no_grad():
            for name, each in engine.model.named_parameters():
                each.copy_(self.first[name])
        engine.config = config if plan is None else plugin.with_plan(config, Plan.of(plan))
        engine.actor = PPOActor(engine.config, engine)
        exchange = plugin.TrimtabEngine._exchange
        if plan is None:  # AReaL's own loss goes through as it came
            plugin.TrimtabEngine._exchange = lambda _, loss: (loss, lambda x: x["loss_mask"].count_nonzero())
        stepping, found = engine.optimizer_step, []
        engine.optimizer_step = lambda: (found.append(self.gradient()), stepping())[1]
        try:
            metrics = self._update(data)
        finally:
            plugin.TrimtabEngine._exchange, engine.optimizer_step = exchange, stepping
        return Step(torch.cat(found), metrics["ppo_actor/update/actor_loss/avg"], metrics)

    def _update(self, data: Rollouts) -> dict[str, float]:
        prompt = data.prompts.shape[1]
        batch = {
            "input_ids": data.tokens,
            "attention_mask": data.attention.bool(),
            "loss_mask": torch.cat([torch.zeros_like(data.prompts), data.mask.long()], 1),
            "rewards": data.rewards * 2 - 1,
            "versions": torch.zeros_like(data.tokens),
        }
        rows = [{name: value[place : place + 1] for name, value in batch.items()} for place in range(len(data.mask))]
        scored = self.engine.compute_logp([dict(row) for row in rows])
        for place, (row, score) in enumerate(zip(rows, scored, strict=True)):
            score = score[:1].detach().clone()
            moved = torch.zeros_like(score)
            moved[:, prompt - 1 : -1] = data.noise[place]
            row["prox_logp"] = score
            row["logprobs"] = torch.roll(score + moved, 1, -1)
        stats_tracker.export_all()
        ready = self.engine.compute_advantages(rows)
        self.engine.ppo_update(ready)
        return {name: float(value) for name, value in stats_tracker.export_all().items()}


def read(rejection: dict[str, Any]) -> Any:
    return trimtab.dialects.read(
        "areal", {"actor": {"rejection_sampling": rejection, "use_decoupled_loss": True}}
    ).correction


def start(rank: int, world: int, store: Path) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank)}
    if not dist.is_initialized():
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("areal") / "model")


@pytest.fixture(scope="module")
def actor(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Actor:
    start(0, 1, tmp_path_factory.mktemp("store") / "store")
    return Actor(model)


@pytest.mark.parametrize("rejection", [MASK, CLAMP, GEOMETRIC, K2], ids=["mask", "clamp", "geometric", "k2"])
def test_the_update_of_the_actor_is_areals(actor: Actor, rejection: dict[str, Any]):
    theirs = actor.step(configuration(actor.path, rejection))
    off = actor.step(configuration(actor.path))
    ours = actor.step(configuration(actor.path), {"correction": read(rejection).settings(), "metrics": "all"})
    kept = ours.metrics["ppo_actor/update/trimtab/kept_fraction"]
    assert (kept < 1) == (rejection["action"] == "mask"), "the gate has to fire"
    assert kept > 0
    same_step("AReaL", " ".join(f"{k}={v}" for k, v in rejection.items()), theirs, ours, off)
    compared = {
        k: v
        for k, v in theirs.metrics.items()
        if k.startswith("ppo_actor/") and "/rs_" not in k.replace("rs_filtered", "")
    }
    assert same_metrics(compared, ours.metrics | _settings_of(theirs)) > 20


def _settings_of(step: Step) -> dict[str, float]:
    """The bounds that AReaL logs of its own configuration."""
    return {name: value for name, value in step.metrics.items() if name.rpartition("/")[2] in ("rs_upper", "rs_lower")}


def test_what_a_plan_leaves_out_is_areals_own(actor: Actor):
    config, off = configuration(actor.path, MASK), actor.step(configuration(actor.path))
    same_step("AReaL", "nothing asked for: its own settings, our loss", actor.step(config), actor.step(config, {}), off)


def test_a_record_has_each_log_prob_under_its_own_token(actor: Actor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    kept = RecordStandIn.put(monkeypatch)
    actor.step(configuration(actor.path), {"correction": "token-tis", "record": str(tmp_path)})
    batch = {name: torch.cat([each[name] for each in kept]) for name in ("tokens", "mask", "behavior", "proximal")}
    assert torch.equal(batch["tokens"], DATA.tokens)
    width = DATA.mask.shape[1]
    assert torch.equal(batch["mask"][:, -width:].bool(), DATA.mask)
    assert not batch["mask"][:, :-width].any()
    apart = (batch["behavior"] - batch["proximal"])[:, -width:]
    torch.testing.assert_close(apart[DATA.mask], DATA.noise[DATA.mask], rtol=1e-4, atol=1e-5)
    assert (apart.roll(1, -1)[DATA.mask] - DATA.noise[DATA.mask]).abs().max() > 0.01  # one token off is seen


def packed(
    data: Rollouts, rows: slice, leaf: torch.Tensor, proximal: torch.Tensor
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Rows as an engine packs them: one after the other, with where each begins."""
    mask = data.mask[rows]
    lengths = mask.sum(-1)
    given = {
        "logprobs": (proximal + data.noise)[rows][mask],
        "prox_logp": proximal[rows][mask],
        "advantages": data.advantages[rows, None].expand(mask.shape)[mask],
        "loss_mask": mask[mask],
        "cu_seqlens": torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)]),
        "attention_mask": mask,
    }
    return leaf[rows][mask], given


@pytest.mark.parametrize("reduction", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
def test_the_split_into_micro_batches_changes_nothing(tmp_path: Path, reduction: str):
    """The loss on packed rows, weighed as the engine weighs it. The engine itself packs for kernels that a CPU has not: without them rows
    of one micro-batch see each other, whoever's loss it is."""
    config = plugin.with_plan(
        configuration(tmp_path), Plan.of({"correction": read(GEOMETRIC).settings(), "reduction": reduction})
    )
    loss_fn, weigh = plugin.TrimtabEngine._exchange(
        SimpleNamespace(config=config),
        functools.partial(None.__class__, prox_logp_method="recompute", current_version=None),
    )
    make = torch.Generator().manual_seed(6)
    proximal = -torch.rand(DATA.mask.shape, generator=make) * 3
    current = proximal + 0.2 * torch.randn(proximal.shape, generator=make)
    found = []
    for splits in ((slice(0, 8),), (slice(0, 3), slice(3, 4), slice(4, 8))):
        leaf = current.clone().requires_grad_()
        parts = [packed(DATA, rows, leaf, proximal) for rows in splits]
        total = sum(weigh(given) for _, given in parts)
        sum(
            loss_fn(log_probs, torch.zeros_like(log_probs), given) * weigh(given) / total for log_probs, given in parts
        ).backward()
        found.append(leaf.grad)
    stats_tracker.export_all()
    assert found[0].abs().max() > 1e-3
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-7)


def test_a_reduction_a_loss_and_a_rule_that_areal_does_not_have(actor: Actor):
    off = actor.step(configuration(actor.path))
    steps = [
        actor.step(configuration(actor.path), plan)
        for plan in (
            {"reduction": "seq-mean-token-mean"},
            {"loss": "cispo", "correction": {"preset": "geo-rs+token-mis", "lower": 0.95, "upper": 1.05}},
        )
    ]
    for step in steps:
        assert (step.gradient - off.gradient).abs().max() > 1e-3 * off.gradient.abs().max() > 0
    assert 0 < steps[1].metrics["ppo_actor/update/trimtab/kept_fraction"] < 1


@pytest.mark.parametrize(
    ("plan", "settings", "words"),
    [
        ({"kl": 0.1}, {}, "needs a plan without kl.*kl_ctl"),
        ({"entropy_bonus": 0.1}, {}, "needs a plan without entropy_bonus"),
        ({"advantage": "grpo"}, {}, "needs a plan without advantage"),
        ({"reduction": "prompt-mean"}, {}, "got reduction prompt-mean"),
        ({"reduction": "token-sum"}, {}, "got reduction token-sum.*weighted mean over micro-batches"),
        ("m2po", {}, "a correction of single sequences"),
        ({}, {"m2_threshold": 0.1}, "needs denominator trained, got denominator kept"),
        (
            {"correction": {"gates": [{"metric": "ratio", "upper": 1.1}], "denominator": "kept"}},
            {},
            "needs denominator trained",
        ),
        ("token-tis", {"use_decoupled_loss": False, "recompute_logprob": False}, "needs actor.use_decoupled_loss true"),
        ("bypass-token-tis", {"use_decoupled_loss": False}, "needs actor.recompute_logprob false"),
    ],
)
def test_what_cannot_be_honoured_is_refused_before_an_engine_is_made(
    tmp_path: Path, plan: Any, settings: Any, words: str
):
    with pytest.raises(ConfigError, match=words):
        plugin.with_plan(configuration(tmp_path, **settings), Plan.of(plan))


@pytest.mark.parametrize("single_controller", [True, False])
def test_the_trainer_makes_our_engine_and_the_controller_finds_it_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, single_controller: bool
):
    from importlib import import_module

    from areal.utils import environ

    assert getattr(import_module(plugin.FSDPActor.__module__), plugin.FSDPActor.__name__) is plugin.FSDPActor
    asked: list[str] = []

    class Engine:
        def __init__(self, config: Any) -> None:
            asked.append("alone")

        @classmethod
        def as_controller(cls, config: Any, scheduler: Any) -> Any:
            asked.append("controller")
            return cls.__new__(cls)

        def create_process_group(self, parallel_strategy: Any) -> None:
            asked.append("group")

    trainer = object.__new__(plugin.PPOTrainer)
    trainer.scheduler = None
    monkeypatch.setattr(plugin, "FSDPActor", Engine)
    monkeypatch.setattr(environ, "is_single_controller", lambda: single_controller)
    config = plugin.with_plan(configuration(tmp_path), Plan.of("token-tis"))
    made = trainer._create_train_engine(config, SimpleNamespace(backend="fsdp", parallel=None))
    assert isinstance(made, Engine)
    assert asked == ["controller" if single_controller else "alone", "group"]


def test_what_is_exchanged_or_called_still_looks_the_same():
    from areal.engine.fsdp_engine import FSDPPPOActor
    from areal.trainer.ppo import actor as theirs
    from areal.trainer.rl_trainer import PPOTrainer

    wanted = {
        FSDPPPOActor.train_batch: ["self", "input_", "loss_fn", "loss_weight_fn"],
        PPOTrainer._create_train_engine: ["self", "actor_config", "alloc"],
        theirs._resolve_proximal_logp: [
            "prox_logp_gt",
            "prox_logp_method",
            "old_logp",
            "logprobs",
            "versions",
            "current_version",
        ],
        theirs._log_version_staleness_stats: ["versions", "current_version", "version_metrics_mask"],
        theirs._log_proximal_approximation_stats: [
            "prox_logp_method",
            "prox_logp_gt",
            "old_logp",
            "logprobs",
            "versions",
            "current_version",
            "compute_logp_mask",
        ],
    }
    for function, names in wanted.items():
        assert list(inspect.signature(function).parameters) == names
    loss = list(inspect.signature(theirs.grpo_loss_fn).parameters)
    assert loss[:3] == ["logprobs", "entropy", "input_data"]
    assert {"prox_logp_method", "current_version", "vocab_min_logits", "vocab_max_logits"} <= {*loss}


# --- two ranks ----------------------------------------------------------------------------------------------------------


def _on_rank(rank: int, folder: str, model: str) -> None:
    torch.set_num_threads(1)
    start(rank, 2, Path(folder) / "store")
    actor = Actor.__new__(Actor)
    actor.path = Path(model)
    plugin_config = plugin.with_plan(configuration(actor.path, backend="fsdp:d2"), Plan())
    actor.engine = plugin.FSDPActor(plugin_config)
    actor.engine.create_process_group()
    actor.engine.initialize(None, FinetuneSpec(total_train_epochs=1, dataset_size=64, train_batch_size=8))
    actor.first = {name: each.detach().clone() for name, each in actor.engine.model.named_parameters()}
    mine = Rollouts(**{name: value[rank * 4 : rank * 4 + 4] for name, value in vars(DATA).items()})
    two = {"backend": "fsdp:d2", "rows": 4}
    steps = {
        "theirs": actor.step(configuration(actor.path, GEOMETRIC, **two), None, mine),
        "ours": actor.step(configuration(actor.path, **two), {"correction": read(GEOMETRIC).settings()}, mine),
        "off": actor.step(configuration(actor.path, **two), None, mine),
    }
    torch.save({name: {"gradient": each.gradient} for name, each in steps.items()}, Path(folder) / f"rank{rank}.pt")


def test_two_ranks_take_areals_step(model: Path, tmp_path: Path):
    mp.spawn(_on_rank, args=(str(tmp_path), str(model)), nprocs=2, join=True)
    found = torch.load(tmp_path / "rank0.pt", weights_only=True)
    theirs, ours, off = (Step(each["gradient"], 0.0, {}) for each in found.values())
    same_step("AReaL", "two ranks, geometric", theirs, ours, off)
