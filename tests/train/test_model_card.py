"""The model card: what stands in it, that nothing in it acts, and that it is the reader's to edit."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.train.small_runs import small
from trimtab import __version__, preset
from trimtab.config.files import load
from trimtab.config.training import Train
from trimtab.records.run import RunDirectory
from trimtab.train.checkpoint import flaw_of
from trimtab.train.loop import train
from trimtab.train.model_card import HeldOut, model_card

HOSTILE = [
    "`rm -rf ~`",
    "a/b\nlicense: mit\n---\n# Mine",
    "</code><script>alert(1)</script>",
    "[x](javascript:alert(1))",
    "``````\n<img src=x onerror=alert(1)>\n``````",
    '"}\n---\n',
    "\u202egnp.exe",
    "\x1b[31mred\x07",
    "a\ud800b",
    "*/ && ${oc.env:HOME} | tee",
]


def front_matter(card: str) -> dict[str, object]:
    begin, block, _ = card.split("---\n", 2)
    assert begin == ""
    return yaml.safe_load(block)


def settings_in(card: str, folder: Path) -> Train:
    found = re.search(r"^(`{3,})yaml\n(.*?)^\1$", card, re.MULTILINE | re.DOTALL)
    assert found
    file = folder / "run.yaml"
    file.write_text(found[2], encoding="utf-8")
    return load(Train, file)


def card(config: Train, held_out: HeldOut | None = None) -> str:
    return model_card(config, step=3, held_out=held_out)


def test_a_run_leaves_a_card_beside_the_weights_of_every_checkpoint(tmp_path: Path) -> None:
    config = small()
    train(config, tmp_path / "run")
    accuracy = {
        line["step"] + 1: line["eval/accuracy"]
        for line in RunDirectory.read(tmp_path / "run").metrics()
        if "eval/accuracy" in line
    }
    cards = {step: (tmp_path / f"run/checkpoints/step-{step:06d}/model/README.md").read_text() for step in (3, 6)}
    # of the ten problems of one digit two are held out, however many were asked for
    # evaluated every 2 steps: what the weights of step 3 are worth was last measured after step 2
    assert f"{accuracy[2]:.3f} of 2 problems, after 2 steps;" in cards[3]
    assert f"{accuracy[6]:.3f} of 2 problems, after 6 steps;" in cards[6]
    assert "Weights after 3 of 6 steps" in cards[3]
    assert f"with trimtab {__version__}." in cards[6]
    assert "weight: min(r, 2)" in cards[6]
    assert settings_in(cards[6], tmp_path).but(checkpoint=config.checkpoint) == config


def test_the_front_matter_names_a_base_of_the_hub_and_no_licence() -> None:
    found = front_matter(card(small(model={"path": "Qwen/Qwen2.5-0.5B"})))
    assert found["base_model"] == "Qwen/Qwen2.5-0.5B"
    assert found["tags"] == ["trimtab", "reinforcement-learning", "grpo", "clip"]
    assert "license" not in found
    for path in (None, "/home/somebody/weights", "../weights"):  # no ids of the hub
        assert "base_model" not in front_matter(card(small(model={"path": path})))


def test_without_an_evaluation_it_says_so() -> None:
    assert "**Held-out accuracy**: not measured" in card(small(evaluate=None))
    assert "0.500 of 16 problems, after 2 steps; 0.250 before the first" in card(small(), HeldOut(0.5, 16, 2, 0.25))


def test_where_it_was_run_is_not_told() -> None:
    ranks = small(learner={"ranks": 2, "shard": "fsdp"}, threads=3)
    assert card(ranks) == card(small())
    assert card(small(correction=preset("icepop"))) != card(small())  # what is learnt is


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_names_stay_text(text: str, tmp_path: Path) -> None:
    _check_text(text, tmp_path)


@given(st.text(max_size=40))
def test_any_name_stays_text(text: str) -> None:
    check_markdown(card(hostile(text)))


def hostile(text: str) -> Train:
    options = {"note": text.encode("utf-8", "replace").decode()}
    return small(
        model={"path": text}, task={"name": text, "path": text, "template": text, "options": options, "rewards": []}
    )


def _check_text(text: str, folder: Path) -> None:
    found = card(hostile(text))
    check_markdown(found)
    assert set(front_matter(found)) <= {"library_name", "pipeline_tag", "tags", "base_model"}
    if "\ud800" not in text:
        assert settings_in(found, folder).task.template == text


def check_markdown(text: str) -> None:
    """No element of a page comes from a name: only our headings, and text, code and blocks of code."""
    text.encode()
    body = text.split("---\n", 2)[2]
    tokens = MarkdownIt("commonmark", {"html": True}).parse(body)
    every = [*tokens, *(child for token in tokens for child in token.children or ())]
    assert not [each for each in every if each.type in ("html_block", "html_inline", "link_open", "image")]
    titles = [body_token.content for token, body_token in pairwise(tokens) if token.type == "heading_open"]
    assert titles[1:] == ["Correction", "Again", "Load"]
    assert [each.info for each in tokens if each.type == "fence"] == ["text", "yaml", "console", "python"]
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)


def test_whoever_fills_in_the_licence_does_not_damage_the_checkpoint(tmp_path: Path) -> None:
    train(small(steps=3), tmp_path / "run")
    step = tmp_path / "run/checkpoints/step-000003"
    file = step / "model/README.md"
    file.write_text(file.read_text().replace("# license: yours to fill in", "license: mit"))
    assert front_matter(file.read_text())["license"] == "mit"
    assert flaw_of(step) is None
    file.unlink()
    assert flaw_of(step) is None
    (step / "model/config.json").unlink()  # what is needed is still missed
    assert flaw_of(step) == "model/config.json is missing"
