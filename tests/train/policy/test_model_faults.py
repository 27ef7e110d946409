"""A model folder that is damaged or does not fit is one sentence of ours, and nothing in it is run or unpickled."""

from __future__ import annotations

import ast
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import trimtab
from trimtab.config.training import Model, Task, Tiny
from trimtab.errors import ConfigError
from trimtab.train.messages import Problem
from trimtab.train.policy.model import load_pretrained
from trimtab.train.policy.policy import Policy
from trimtab.train.policy.tiny import tiny_policy

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tiny_policy(Tiny(layers=1, width=16, heads=2, mlp=24), "0123456789=+ ", 64, 0)
    made.model.save_pretrained(tmp_path)
    made.policy.tokenizer.save_pretrained(tmp_path)
    return tmp_path


def cut(folder: Path) -> None:
    data = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(data[: len(data) // 2])


def with_header(header: bytes, size: int | None = None) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        length = struct.pack("<Q", len(header) if size is None else size)
        (folder / WEIGHTS).write_bytes(length + header)

    return write


def with_settings(file: str = "config.json", **changes: object) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        settings = json.loads((folder / file).read_text()) | changes
        (folder / file).write_text(json.dumps(settings))

    return write


def with_text(file: str, text: str) -> Callable[[Path], None]:
    return lambda folder: (folder / file).write_text(text) and None


def with_index(text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / WEIGHTS).rename(folder / "model-00001-of-00001.safetensors")
        (folder / f"{WEIGHTS}.index.json").write_text(text)

    return write


def without(name: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        weights = load_file(folder / WEIGHTS)
        save_file({key: value for key, value in weights.items() if key != name}, folder / WEIGHTS, {"format": "pt"})

    return write


FAULTS: dict[str, Callable[[Path], object]] = {
    "truncated weights": cut,
    "empty weights": lambda folder: (folder / WEIGHTS).write_bytes(b""),
    "weights that are text": lambda folder: (folder / WEIGHTS).write_bytes(b"version https://git-lfs.github.com/spec/v1\n"),
    "a header beyond the file": with_header(b"{}", 1 << 40),
    "a header that is no JSON": with_header(b"{" * 64),
    "a header of another kind": with_header(b'{"a": 1}'),
    "weights that are a folder": lambda folder: ((folder / WEIGHTS).unlink(), (folder / WEIGHTS).mkdir()),
    "no weights": lambda folder: (folder / WEIGHTS).unlink(),
    "a wider config": with_settings(hidden_size=32),
    "a deeper config": with_settings(num_hidden_layers=3, layer_types=["full_attention"] * 3),
    "a missing weight": without("model.norm.weight"),
    "an index without metadata": with_index('{"weight_map": {"lm_head.weight": "model-00001-of-00001.safetensors"}}'),
    "an index that is a list": with_index("[]"),
    "an index that names what is not there": with_index('{"metadata": {}, "weight_map": {"a": "nowhere.safetensors"}}'),
    "a size of text": with_settings(hidden_size="wide"),
    "heads of 0": with_settings(num_attention_heads=0),
    "a config that is a list": with_text("config.json", "[]"),
    "a config that is no JSON": with_text("config.json", "{"),
    "an unknown architecture": with_settings(model_type="nonsense", architectures=["Nonsense"]),
    "an empty tokenizer": with_text("tokenizer.json", ""),
    "a tokenizer of another shape": with_text("tokenizer.json", '{"model": 1}'),
    "tokenizer settings that are a list": with_text("tokenizer_config.json", "[]"),
    "a stop of text": with_settings("generation_config.json", eos_token_id="end"),
}  # fmt: skip


@pytest.mark.parametrize("what", FAULTS)
def test_a_damaged_model_is_one_sentence(folder: Path, what: str) -> None:
    FAULTS[what](folder)
    with pytest.raises(ConfigError, match=r"^model\.path needs ") as refusal:
        load_pretrained(Model(path=str(folder)))
    said = str(refusal.value)
    assert "\n" not in said
    assert said.endswith(".")
    assert len(said) < 700
    assert str(folder) in said


def test_weights_that_do_not_fit_are_named(folder: Path) -> None:
    with_settings(hidden_size=32)(folder)
    with pytest.raises(
        ConfigError, match=r"got lm_head\.weight of \[16, 16\], not \[16, 32\] \(of 15 that do not fit\)"
    ):
        load_pretrained(Model(path=str(folder)))
    without("model.norm.weight")(folder)
    with_settings(hidden_size=16)(folder)
    with pytest.raises(ConfigError, match=r"got no model\.norm\.weight \(of 1 that do not fit\)"):
        load_pretrained(Model(path=str(folder)))


def test_a_model_on_its_own_is_loaded(folder: Path) -> None:
    assert load_pretrained(Model(path=str(folder))).model.config.hidden_size == 16


# ── chat templates ─────────────────────────────────────────────────────────────────────────────────────────────────────


def chatting(folder: Path, template: str | None) -> Policy:
    policy = load_pretrained(Model(path=str(folder))).policy
    policy.tokenizer.chat_template = template
    return policy


TEMPLATES = {
    "none": (None, "a tokenizer with a chat template, got one without. Set task.chat=false"),
    "that does not parse": ("{% for", "got a problem: TemplateSyntaxError"),
    "that refuses": ("{{ raise_exception('no system messages') }}", "TemplateError: no system messages"),
    "that asks for more": ("{{ messages[7].content.nope }}", "got a problem: UndefinedError"),
    "that divides by 0": ("{{ 1 // 0 }}", "got a problem: ZeroDivisionError"),
    "that looks around": ("{{ ''.__class__.__mro__ }}", "got a problem: SecurityError"),
}


@pytest.mark.parametrize("what", TEMPLATES)
def test_a_chat_template_that_does_not_serve_is_one_sentence(folder: Path, what: str) -> None:
    template, words = TEMPLATES[what]
    policy = chatting(folder, template)
    with pytest.raises(ConfigError, match=r"^task\.chat needs ") as refusal:
        policy.prompt(Task(chat=True, system="Be short."), Problem("a", "1 + 1", "2"))
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_chat_template_that_serves_is_used(folder: Path) -> None:
    policy = chatting(folder, "{% for each in messages %}{{ each.content }}={% endfor %}")
    ids = policy.prompt(Task(chat=True), Problem("a", "1+1", "2"))
    assert policy.texts([ids]) == ["1+1="]


# ── nothing of a folder is run ─────────────────────────────────────────────────────────────────────────────────────────


class Canary:
    """Leaves a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (self.path, "w"))


def test_code_of_a_model_is_neither_run_nor_offered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal transformers would ask, over the display of the run, and take a y for an answer."""
    canary = folder / "canary"
    code = f"open({str(canary)!r}, 'w')\nclass Mine:\n    pass\n"
    (folder / "mine.py").write_text(code)
    with_settings(
        auto_map={"AutoConfig": "mine.Mine", "AutoModelForCausalLM": "mine.Mine"}, model_type="mine"
    )(folder)  # fmt: skip
    with_settings("tokenizer_config.json", auto_map={"AutoTokenizer": ["mine.Mine", None]}, tokenizer_class="Mine")(
        folder
    )
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asked"))
    monkeypatch.setattr("transformers.dynamic_module_utils.TIME_OUT_REMOTE_CODE", 15, raising=False)
    for random in (False, True):
        with pytest.raises(ConfigError, match=r"model\.path needs"):
            load_pretrained(Model(path=str(folder), random=random))
    assert not canary.exists()


def test_a_pickle_beside_the_weights_is_not_read(folder: Path) -> None:
    canary = folder / "canary"
    (folder / WEIGHTS).unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Canary(canary)))
    with pytest.raises(ConfigError, match=r"model\.path needs"):
        load_pretrained(Model(path=str(folder)))
    torch.save({"a": torch.zeros(1)}, folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"model\.path needs"):
        load_pretrained(Model(path=str(folder)))
    assert not canary.exists()


def calls() -> list[tuple[str, ast.Call]]:
    """Every call of a loader of transformers in the package, by file and line."""
    found: list[tuple[str, ast.Call]] = []
    root = Path(trimtab.__file__).parent
    for file in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
            if name in ("from_pretrained", "from_config"):
                found.append((f"{file.relative_to(root)}:{node.lineno}", node))
    return found


def test_every_loader_of_transformers_is_told_to_run_no_code_and_to_unpickle_nothing() -> None:
    seen = calls()
    assert len(seen) >= 6
    for place, call in seen:
        given = {each.arg: each.value for each in call.keywords}
        trust = given.get("trust_remote_code")
        assert isinstance(trust, ast.Constant), place
        assert trust.value is False, place
        owner = ast.unparse(call.func.value)
        if call.func.attr == "from_pretrained" and not owner.startswith(
            ("AutoConfig", "AutoTokenizer", "PreTrainedTok")
        ):
            only = given.get("use_safetensors")
            assert isinstance(only, ast.Constant), place
            assert only.value is True, place
