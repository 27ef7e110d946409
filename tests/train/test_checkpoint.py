import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoModelForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from tests.train.saving import load, save
from trimtab.errors import CheckpointError
from trimtab.train.checkpoint import Saved, clear_leftovers, flaw_of, latest
from trimtab.train.learner.state_files import from_json, to_json

WORDS = {word: number for number, word in enumerate(["<pad>", *"0123456789+="])}


def policy(seed: int = 0, tied: bool = False, dtype: torch.dtype = torch.float32) -> Qwen2ForCausalLM:
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=16,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=tied,
    )
    return Qwen2ForCausalLM(config).to(dtype)


def tokenizer() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel(WORDS, unk_token="<pad>")), pad_token="<pad>")


def adam(model: torch.nn.Module, lr: float = 1e-2) -> torch.optim.AdamW:
    decayed = [parameter for parameter in model.parameters() if parameter.ndim > 1]
    rest = [parameter for parameter in model.parameters() if parameter.ndim <= 1]
    return torch.optim.AdamW([{"params": decayed}, {"params": rest, "weight_decay": 0.0}], lr=lr, betas=(0.9, 0.95))


def step(model: Qwen2ForCausalLM, optimizer: torch.optim.Optimizer, times: int = 1) -> None:
    tokens = torch.arange(10).remainder(7)[None]
    for _ in range(times):
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()


def weights(model: torch.nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(one, other, strict=True))


def saved(folder: Path, number: int, model: Any, optimizer: Any, keep: int = 2, **extra: Any) -> Path:
    values: dict[str, Any] = {"state": {"step": number}, "arrays": {"seen": np.arange(number)}} | extra
    return save(folder, number, model=model, tokenizer=tokenizer(), optimizer=optimizer, keep=keep, **values)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill loses nothing that was written, and no test here pulls the plug: nobody has to wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def silent(message: str) -> None:
    raise AssertionError(message)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# round trips


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_resumed_run_goes_on_bit_for_bit(tmp_path: Path, tied: bool, dtype: torch.dtype) -> None:
    model = policy(1, tied, dtype)
    optimizer = adam(model)
    step(model, optimizer, 2)
    saved(tmp_path, 2, model, optimizer)
    step(model, optimizer, 2)

    again = policy(2, tied, dtype)
    other = adam(again, lr=0.5)
    addresses = [parameter.data_ptr() for parameter in again.parameters()]
    path = latest(tmp_path, silent)
    assert path is not None
    found = load(path, model=again, optimizer=other)
    assert (found.step, found.state) == (2, {"step": 2})
    assert [parameter.data_ptr() for parameter in again.parameters()] == addresses
    assert other.param_groups[0]["betas"] == (0.9, 0.95)
    step(again, other, 2)
    assert equal(weights(again), weights(model))
    ours, theirs = optimizer.state_dict(), other.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    for index, values in ours["state"].items():
        assert equal(list(values.values()), [theirs["state"][index][name] for name in values])


def test_moments_keep_a_wider_number_type_than_the_weights(tmp_path: Path) -> None:
    model = policy(1, dtype=torch.bfloat16)
    optimizer = adam(model)
    step(model, optimizer)
    for values in optimizer.state.values():
        values["exp_avg"] = values["exp_avg"].float() + 1e-9
    saved(tmp_path, 1, model, optimizer)
    again = policy(2, dtype=torch.bfloat16)
    other = adam(again)
    load(tmp_path / "step-000001", model=again, optimizer=other)
    ours = [values["exp_avg"] for values in optimizer.state.values()]
    assert equal(ours, [values["exp_avg"] for values in other.state.values()])
    assert ours[0].dtype == torch.float32


@pytest.mark.parametrize(
    "make",
    [
        lambda parameters: torch.optim.SGD(parameters, lr=0.1),
        lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
        lambda parameters: torch.optim.AdamW(parameters, lr=torch.tensor(0.1), amsgrad=True),
        lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
    ],
)
def test_other_optimisers_go_on_too(tmp_path: Path, make: Callable[[Any], torch.optim.Optimizer]) -> None:
    model = policy(1)
    optimizer = make(model.parameters())
    saved(tmp_path, 0, model, optimizer)  # before any step: no state yet
    load(tmp_path / "step-000000", model=model, optimizer=optimizer)
    step(model, optimizer, 2)
    saved(tmp_path, 2, model, optimizer)
    again = policy(2)
    other = make(again.parameters())
    load(tmp_path / "step-000002", model=again, optimizer=other)
    step(model, optimizer, 2)
    step(again, other, 2)
    assert equal(weights(again), weights(model))


@pytest.mark.parametrize("tied", [False, True])
def test_the_model_folder_loads_in_transformers(tmp_path: Path, tied: bool) -> None:
    model = policy(3, tied)
    path = saved(tmp_path, 5, model, adam(model))
    whole = AutoModelForCausalLM.from_pretrained(path / "model")
    assert equal(weights(whole), weights(model))
    assert whole.config.tie_word_embeddings is tied
    assert PreTrainedTokenizerFast.from_pretrained(path / "model").get_vocab() == WORDS


def test_state_and_arrays_come_back_as_what_they_were(tmp_path: Path) -> None:
    model = policy()
    base = torch.arange(6.0)
    generator = np.random.default_rng(3)
    state = {
        "rng": generator.bit_generator.state,
        "best": float("nan"),
        "worst": -float("inf"),
        "pair": (1, (2.5, None)),
    }
    arrays = {
        "torch": torch.get_rng_state(),
        "empty": np.zeros((0, 3), np.int32),
        "scalar": np.array(2.5),
        "bool": np.array([True, False]),
        "part": base[::2],
        "view": base[:3],
        "turned": base.view(2, 3).T,
        "half": torch.tensor([1.5], dtype=torch.bfloat16),
        "frozen": np.broadcast_to(np.float32(1), (2, 2)),
        "wide": np.array([2**63 + 1], np.uint64),
    }
    path = saved(tmp_path, 1, model, adam(model), state=state, arrays=arrays)
    found = load(path, model=model)
    assert isinstance(found, Saved)
    assert np.isnan(found.state.pop("best"))
    assert found.state == {name: value for name, value in state.items() if name != "best"}
    for name, array in arrays.items():
        assert type(found.arrays[name]) is type(array)
        assert found.arrays[name].dtype == array.dtype
        assert found.arrays[name].shape == array.shape
        assert bool((found.arrays[name] == array).all())
    again = np.random.default_rng(0)
    again.bit_generator.state = found.state["rng"]
    assert again.random() == generator.random()


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.sampled_from(["float", "tuple", "dict", "other"]), inner, max_size=2)
    ),
    max_leaves=8,
)


@given(plain)
def test_any_plain_value_survives_json(value: Any) -> None:
    assert from_json(json.loads(json.dumps(to_json(value), allow_nan=False))) == value


@pytest.mark.parametrize("value", [{1: 2}, object(), np.arange(2), torch.ones(1), {"a": {3}}, b"x"])
def test_a_state_json_would_change_is_refused_and_leaves_nothing(tmp_path: Path, value: Any) -> None:
    model = policy()
    with pytest.raises(CheckpointError, match="needs plain values"):
        saved(tmp_path, 1, model, adam(model), state={"value": value})
    assert names(tmp_path) == []


def test_arrays_of_objects_are_refused(tmp_path: Path) -> None:
    model = policy()
    with pytest.raises(CheckpointError, match="arrays of numbers"):
        saved(tmp_path, 1, model, adam(model), arrays={"text": np.array(["a"])})
    assert names(tmp_path) == []


def test_nothing_is_pickled(tmp_path: Path) -> None:
    model = policy()
    path = saved(tmp_path, 1, model, adam(model))
    kinds = {file.suffix for file in path.rglob("*") if file.is_file()}
    assert kinds == {".json", ".safetensors"} or kinds == {".json", ".safetensors", ".jinja"}


def test_a_model_saved_under_other_names_than_it_trains_with_comes_back(tmp_path: Path) -> None:
    """Experts are one tensor in memory and one each on disk."""
    config = Qwen3MoeConfig(
        vocab_size=16,
        hidden_size=8,
        intermediate_size=12,
        moe_intermediate_size=4,
        num_experts=3,
        num_experts_per_tok=2,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
    )
    model, again = Qwen3MoeForCausalLM(config), Qwen3MoeForCausalLM(config)
    path = saved(tmp_path, 1, model, adam(model))
    load(path, model=again)
    assert equal(weights(again), weights(model))


# what does not fit


def test_another_model_is_refused_before_any_weight_changes(tmp_path: Path) -> None:
    model = policy()
    path = saved(tmp_path, 1, model, adam(model))
    config = Qwen2Config(**(model.config.to_dict() | {"intermediate_size": 16}))
    wider = Qwen2ForCausalLM(config)
    before = weights(wider)
    with pytest.raises(CheckpointError, match=r"another shape or number type for model\.layers\.0\.mlp"):
        load(path, model=wider)
    deeper = Qwen2ForCausalLM(Qwen2Config(**(model.config.to_dict() | {"num_hidden_layers": 2, "layer_types": None})))
    with pytest.raises(CheckpointError, match=r"has no model\.layers\.1"):
        load(path, model=deeper)
    with pytest.raises(CheckpointError, match="another shape or number type"):
        load(path, model=policy(dtype=torch.bfloat16))
    assert equal(weights(wider), before)


def test_another_optimiser_is_refused(tmp_path: Path) -> None:
    model = policy()
    path = saved(tmp_path, 1, model, adam(model))
    for other in (torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.AdamW(list(model.parameters())[::-1])):
        with pytest.raises(CheckpointError, match="needs an optimiser of the same"):
            load(path, model=model, optimizer=other)


# which one is latest


def test_the_newest_are_kept_and_the_rest_removed(tmp_path: Path) -> None:
    model = policy()
    for number in (40, 80, 1_000_000, 1_000_040):
        saved(tmp_path, number, model, adam(model), keep=2)
    assert names(tmp_path) == ["step-1000000", "step-1000040"]
    assert latest(tmp_path, silent) == tmp_path / "step-1000040"


def test_where_there_is_none_there_is_no_latest(tmp_path: Path) -> None:
    assert latest(tmp_path / "absent", silent) is None
    assert latest(tmp_path, silent) is None


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints of steps 1 and 2, not to be changed."""
    folder = tmp_path_factory.mktemp("two")
    model = policy(1)
    optimizer = adam(model)
    for number in (1, 2):
        step(model, optimizer)
        saved(folder, number, model, optimizer)
    return folder


FILES = [
    *("manifest.json", "state.json", "arrays.safetensors", "optimizer.json", "optimizer.safetensors"),
    *("model/config.json", "model/generation_config.json", "model/model.safetensors", "model/tokenizer.json"),
    "model/tokenizer_config.json",
]


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("harm", [shortened, emptied, flipped, Path.unlink])
def test_a_damaged_checkpoint_is_skipped_loudly_and_stays(
    two: Path, tmp_path: Path, name: str, harm: Callable[[Path], None]
) -> None:
    shutil.copytree(two, tmp_path / "all")
    harm(tmp_path / "all" / "step-000002" / name)
    warnings: list[str] = []
    assert latest(tmp_path / "all", warnings.append) == tmp_path / "all" / "step-000001"
    assert len(warnings) == 1
    assert "step-000002 is damaged and skipped" in warnings[0]
    assert Path(name).name in warnings[0]
    assert (tmp_path / "all" / "step-000002").is_dir()
    with pytest.raises(CheckpointError, match="needs to be a whole checkpoint"):
        load(tmp_path / "all" / "step-000002", model=policy())


def test_the_list_of_files_to_damage_is_complete(two: Path) -> None:
    found = {path.relative_to(two / "step-000002").as_posix() for path in (two / "step-000002").rglob("*.*")}
    assert found == set(FILES)


def test_a_flip_of_any_byte_of_the_manifest_changes_nothing_that_is_loaded(two: Path, tmp_path: Path) -> None:
    path = tmp_path / "step-000002"
    shutil.copytree(two / "step-000002", path)
    whole = (path / "manifest.json").read_bytes()
    for place in range(0, len(whole), 7):
        (path / "manifest.json").write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert flaw_of(path) is not None, whole[place : place + 9]


def test_where_all_are_damaged_each_is_named_and_none_is_latest(two: Path, tmp_path: Path) -> None:
    shutil.copytree(two, tmp_path / "all")
    for number in (1, 2):
        flipped(tmp_path / "all" / f"step-00000{number}" / "state.json")
    warnings: list[str] = []
    assert latest(tmp_path / "all", warnings.append) is None
    assert len(warnings) == 2


def test_a_checkpoint_under_another_steps_name_is_damaged(two: Path, tmp_path: Path) -> None:
    shutil.copytree(two / "step-000001", tmp_path / "step-000009")
    assert flaw_of(tmp_path / "step-000009") == "manifest.json is of step 1"


def test_a_damaged_one_does_not_count_among_those_kept(two: Path, tmp_path: Path) -> None:
    shutil.copytree(two, tmp_path / "all")
    shortened(tmp_path / "all" / "step-000002" / "state.json")
    model = policy()
    saved(tmp_path / "all", 3, model, adam(model), keep=2)
    assert names(tmp_path / "all") == ["step-000001", "step-000002", "step-000003"]


# faults while saving


def test_all_of_it_is_on_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    late: list[str] = []
    replace = os.replace

    def placed(source: Path, target: Path) -> None:
        late.extend(path.name for path in [source, *source.rglob("*")] if path.stat().st_ino not in synced)
        synced.clear()
        replace(source, target)

    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    monkeypatch.setattr(os, "replace", placed)
    model = policy()
    saved(tmp_path, 1, model, adam(model))
    assert late == []
    assert synced == {tmp_path.stat().st_ino}  # then the name itself


def faulty(real: Callable[..., Any], calls: Any, fault: int, error: Callable[[], None]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        if next(calls) == fault:
            error()
        return real(*arguments, **options)

    return call


def no_room() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_disk_that_fills_at_any_moment_leaves_the_earlier_checkpoints(
    two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = policy(4)
    for fault in range(1, 100):
        folder = tmp_path / str(fault)
        shutil.copytree(two, folder)
        calls = iter(range(1, 1000))
        with monkeypatch.context() as patch:
            for name in ("fsync", "replace"):
                patch.setattr(os, name, faulty(getattr(os, name), calls, fault, no_room))
            try:
                saved(folder, 3, model, adam(model))
            except CheckpointError as error:
                assert "Make room, then resume the run" in str(error)  # noqa: PT017
                assert str(folder / "step-000003") in str(error)  # noqa: PT017
        if next(calls) <= fault:
            assert fault > 10
            return
        assert not [name for name in names(folder) if name.startswith(".saving")]
        path = latest(folder, silent)
        assert path is not None
        assert path.name in ("step-000002", "step-000003")
    raise AssertionError("saving never came to an end")


NAMES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir"}
ALL = {*NAMES, "open", "fsync"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def killed_at(fault: int, kinds: set[str], work: Callable[[], object]) -> bool:
    """Whether a child that does the work died by SIGKILL at its n-th file operation, before it was done."""
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    try:
        calls = iter(range(1, 10_000))

        def count(kind: str, arguments: Any = ()) -> None:
            reads = kind == "open" and not arguments[2] & WRITING
            if kind in kinds and not reads and next(calls) == fault:
                os.kill(os.getpid(), signal.SIGKILL)

        os.fsync = lambda descriptor: count("fsync")  # type: ignore[assignment]
        sys.addaudithook(count)
        work()
    finally:
        os._exit(0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize(("number", "keep", "kinds"), [(3, 2, ALL), (3, 1, NAMES), (2, 1, NAMES)])
def test_a_kill_between_any_two_file_operations_leaves_a_checkpoint(
    two: Path, tmp_path: Path, number: int, keep: int, kinds: set[str]
) -> None:
    """Also where the earlier one is removed, and where the only one, of the same step, is replaced."""
    before = policy(9)
    load(two / "step-000002", model=before)
    after = policy(4)
    words = tokenizer()

    def work(folder: Path) -> Path:
        optimizer = adam(after)
        return save(folder, number, model=after, tokenizer=words, optimizer=optimizer, state={}, arrays={}, keep=keep)

    found = {"before": 0, "after": 0}
    for fault in range(1, 1000):
        folder = tmp_path / str(fault)
        shutil.copytree(two / "step-000002", folder / "step-000002")
        died = killed_at(fault, kinds, lambda folder=folder: work(folder))
        path = latest(folder, lambda message: None)
        assert path is not None
        model = policy(5)
        load(path, model=model)
        side = "after" if equal(weights(model), weights(after)) else "before"
        assert side == "after" or equal(weights(model), weights(before))
        found[side] += 1
        if kinds is NAMES:
            work(folder)
            assert names(folder) == [f"step-00000{number}"]
        shutil.rmtree(folder)
        if not died:
            break
    assert found["before"] >= (30 if kinds is ALL else 3)
    assert found["after"] >= 2


def test_a_real_full_disk_is_said_and_leaves_the_earlier_checkpoint(two: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    size = sum(path.stat().st_size for path in (two / "step-000002").rglob("*"))
    for room in (1.1, 1.3, 1.6, 1.8):
        options = f"size={int(size * room) // 4096 * 4096 + 65536}"
        mounting = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)]
        if shutil.which("mount") is None or subprocess.run(mounting, check=False, capture_output=True).returncode:
            pytest.skip("mounting is not permitted")
        try:
            shutil.copytree(two / "step-000002", disk / "step-000002")
            model = policy(4)
            optimizer = adam(model)
            step(model, optimizer)
            with pytest.raises(CheckpointError, match="step-000003 needs room on its disk: No space left on device"):
                saved(disk, 3, model, optimizer, arrays={"much": np.zeros(size // 8)})
            assert names(disk) == ["step-000002"]
            assert latest(disk, silent) == disk / "step-000002"
        finally:
            subprocess.run(["umount", disk], check=True)


def test_an_unfinished_save_is_warned_of_and_removed_by_the_next(two: Path, tmp_path: Path) -> None:
    shutil.copytree(two, tmp_path / "all")
    (tmp_path / "all" / "step-000002").rename(tmp_path / "all" / ".saving-step-000002")
    warnings: list[str] = []
    assert latest(tmp_path / "all", warnings.append) == tmp_path / "all" / "step-000001"
    assert len(warnings) == 1
    assert "was not finished" in warnings[0]
    model = policy()
    saved(tmp_path / "all", 2, model, adam(model))
    assert names(tmp_path / "all") == ["step-000001", "step-000002"]


def test_a_half_removed_checkpoint_is_cleared_also_where_nothing_more_is_saved(two: Path, tmp_path: Path) -> None:
    shutil.copytree(two, tmp_path / "all")
    shutil.copytree(two / "step-000001", tmp_path / "all" / ".removing-step-000000")
    shutil.copytree(two / "step-000001", tmp_path / "all" / ".replaced-step-000002")
    clear_leftovers(tmp_path / "all")
    assert names(tmp_path / "all") == ["step-000001", "step-000002"]


def test_a_replaced_checkpoint_stays_as_long_as_its_successor_is_damaged(two: Path, tmp_path: Path) -> None:
    shutil.copytree(two / "step-000002", tmp_path / "all" / ".replaced-step-000002")
    shutil.copytree(two / "step-000002", tmp_path / "all" / "step-000002")
    flipped(tmp_path / "all" / "step-000002" / "state.json")
    clear_leftovers(tmp_path / "all")
    assert latest(tmp_path / "all", lambda message: None) == tmp_path / "all" / ".replaced-step-000002"
    model = policy(7)
    saved(tmp_path / "all", 2, model, adam(model))
    assert names(tmp_path / "all") == ["step-000002"]
    assert flaw_of(tmp_path / "all" / "step-000002") is None


@pytest.mark.parametrize(("umask", "mode"), [(0o002, 0o664), (0o022, 0o644), (0o077, 0o600)])
def test_every_file_has_the_mode_of_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        model = policy()
        path = saved(tmp_path, 1, model, adam(model))
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in path.rglob("*") if file.is_file()} == {mode}
