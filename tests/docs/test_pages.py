"""The pages say what the code does: generated ones are fresh, hand-written ones list what exists, their code runs."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from typer.main import get_group as click_group

from trimtab import (
    Correction,
    EntropyBonus,
    Grpo,
    Head,
    HeadLogProbs,
    KlPenalty,
    advantages,
    correct,
    policy_loss,
    preset,
)
from trimtab.check.ask import check
from trimtab.check.laws import LAWS
from trimtab.check.load import ADAPTERS
from trimtab.cli.app import app
from trimtab.config.advantages import ESTIMATORS, Distillation
from trimtab.config.losses import LOSSES, Clip
from trimtab.config.presets import PRESETS, preset_names
from trimtab.core.metrics import gate_name
from trimtab.core.staleness import staleness
from trimtab.dialects.registry import DIALECTS

ROOT = Path(__file__).parents[2]
GATE = "gate/<place>-<metric>-<level>"


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def emitted() -> set[str]:
    """Every metric name over every preset, gate names as a pattern."""
    log_probs, mask = torch.full((2, 3), -1.0), torch.ones(2, 3, dtype=torch.bool)
    names: set[str] = set()
    found = Correction(
        gates=[{"metric": "k2", "bounds": {"keep": 0.9}}], weight={"level": "token", "bounds": {"ess": 0.9}}
    )
    for rule in [found, *(preset(name) for name in preset_names())]:
        out = correct(
            rule,
            **dict.fromkeys(("behavior", "proximal", "current"), log_probs),
            mask=mask,
            advantages=torch.ones(2),
            age=torch.zeros(2, 3),
        )
        gates = tuple(gate_name(place, gate) for place, gate in enumerate(rule.gates))
        for metric in out.metrics:
            prefix = next((each for each in gates if metric.startswith(f"{each}/")), None)
            names.add(metric if prefix is None else metric.replace(prefix, GATE))
    return names


def emitted_by_losses() -> set[str]:
    """Every metric name over every loss, with all that can be asked for."""
    log_probs, mask = torch.full((2, 3), -1.0), torch.ones(2, 3, dtype=torch.bool)
    names: set[str] = set()
    for loss in [*(kind() for kind in LOSSES.values()), Clip(dual=3.0)]:
        found = policy_loss(
            loss,
            **dict.fromkeys(("current", "proximal", "reference", "entropy"), log_probs),
            mask=mask,
            advantages=torch.ones(2),
            kl=KlPenalty(coefficient=1.0),
            entropy_bonus=EntropyBonus(coefficient=1.0),
        )
        names.update(found.metrics)
    targets = torch.zeros(2, 3, dtype=torch.long)
    head = HeadLogProbs(Head(targets.unsqueeze(-1), log_probs.unsqueeze(-1)), targets, current=log_probs.unsqueeze(-1))
    policies = {"current": log_probs, "behavior": log_probs, "mask": mask, "advantages": torch.ones(2)}
    centered = policy_loss("reinforce", **policies, correction="bypass-score-centering", head=head)
    return names | set(centered.metrics.sections)


def emitted_by_advantages() -> set[str]:
    """Of an estimator of groups beside a teacher, which has all there are."""
    rows, tokens = torch.ones(2), torch.ones(2, 3)
    given = {"rewards": rows, "mask": tokens, "group": torch.tensor([0, 1]), "ended": rows}
    found = advantages(Distillation(base=Grpo()), teacher=-tokens, proximal=-tokens, **given)
    return set(found.metrics)


def listed(*headings: str) -> list[str]:
    """The names that sections of the metrics page list; all of them if none is named."""
    sections = re.split(r"^## (.+)$", (ROOT / "docs/metrics.md").read_text(), flags=re.MULTILINE)
    texts = dict(zip(sections[1::2], sections[2::2], strict=True))
    return [
        name for heading in headings or texts for name in re.findall(r"^\| `([^`]+)` \|", texts[heading], re.MULTILINE)
    ]


def test_the_metrics_page_lists_exactly_the_names_the_code_emits():
    assert len(listed()) == len(set(listed()))
    shared = {"advantage/missing_fraction", "positive_fraction", "partial_fraction"}  # those of a correction too
    assert set(listed("Policy loss")) == emitted_by_losses() - shared
    assert set(listed("Advantages")) == emitted_by_advantages()
    assert set(listed("Staleness")) == set(staleness(torch.zeros(1, 1).long(), torch.ones(1, 1), learner=0).metrics)
    assert set(listed()) - set(listed("Policy loss", "Advantages", "Staleness")) == emitted()


@pytest.mark.parametrize(("page", "classes"), [("losses", LOSSES), ("advantages", ESTIMATORS)])
def test_every_loss_and_estimator_has_a_section_with_its_fields(page, classes):
    text = (ROOT / "docs" / f"{page}.md").read_text()
    sections = dict(re.findall(r"^##+ (\w+)\n(.*?)(?=^##+ |\Z)", text, re.MULTILINE | re.DOTALL))
    for kind in classes.values():
        assert f"<!-- fields of {kind.__name__}: " in sections[kind.__name__]


@pytest.mark.parametrize("page", ["README.md", "docs/losses.md", "docs/advantages.md", "docs/lab.md"])
def test_every_marked_table_is_closed_and_known(page):
    module, text = script("generate"), (ROOT / page).read_text()
    found = [each["name"] for each in module.MARKED.finditer(text)]
    assert len(found) == len(set(found)) == text.count("written by docs/generate.py -->") > 0
    assert {each.removeprefix("fields of ") for each in found} <= {*module.MADE, *module.FIELDS_OF}


def test_the_tutorial_shows_the_example_of_the_losses():
    _, code = (ROOT / "examples/losses.py").read_text().split('"""\n\n', 1)
    assert f"```python\n{code}```" in (ROOT / "docs/tutorial.md").read_text()


def test_the_tutorial_shows_what_the_example_prints():
    ran = subprocess.run([sys.executable, ROOT / "examples/losses.py"], capture_output=True, text=True, check=True)
    printed, _, difference = ran.stdout.rpartition(" ")
    assert f"```text\n{printed}" in (ROOT / "docs/tutorial.md").read_text()
    assert float(difference) < 1e-7


def test_the_readme_counts_what_there_is():
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"{len(LOSSES)} losses" in text
    assert f"{len(ESTIMATORS)} estimators" in text
    assert f"{len(PRESETS)} rules have [names]" in text
    named = re.search(r"launch script of (.*?) really computes", text)
    assert named
    assert re.split(r", | or ", named[1]) == [each.title for each in DIALECTS.values()]


def test_the_page_of_the_command_line_lists_every_command_and_every_exit_code():
    page = (ROOT / "docs/cli.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) >= set(click_group(app).commands)
    codes = page.partition("**Exit codes.**")[2].partition("\n\n")[0]
    assert all(f"{code}: " in codes.replace("\n", " ") for code in range(5))


def test_the_readme_stays_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_the_readme_quotes_what_explain_prints():
    quoted = re.search(r"^\$ trimtab (explain .*)\n((?:.*\n)*?)```", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert quoted
    ran = subprocess.run(
        [sys.executable, "-m", "trimtab", *quoted[1].split()], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert " ".join(quoted[2].split()) in " ".join(ran.stdout.split())


def test_the_pattern_of_gate_names_is_the_one_the_code_uses():
    rule = preset("geo-rs+token-mis")
    assert [gate_name(place, gate) for place, gate in enumerate(rule.gates)] == [
        "gate/0-ratio-sequence",
        "gate/1-ratio-token",
    ]
    assert "`gate/0-ratio-sequence/mean`" in (ROOT / "docs/metrics.md").read_text()


@pytest.mark.parametrize("name", ["generate", "figures", "pictures"])
def test_what_is_written_by_a_script_is_up_to_date(name):
    """In a process of its own: without the run-time type checker it takes a second."""
    ran = subprocess.run(
        [sys.executable, ROOT / "docs" / f"{name}.py", "--check"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout
    assert "is stale: run" not in ran.stdout


STALE = "<!-- losses: written by docs/generate.py -->\nedited\n<!-- end of losses -->"


@pytest.mark.parametrize(
    ("name", "page", "text"),
    [
        ("generate", "PAGE", "edited"),
        ("generate", "README", STALE),
        ("generate", "LOSSES_PAGE", STALE),
        ("generate", "ADVANTAGES_PAGE", STALE),
        ("figures", "PATH", "edited"),
    ],
)
def test_a_page_that_was_edited_by_hand_is_stale(name, page, text, tmp_path, monkeypatch, capsys):
    module = script(name)
    for each in ("page", "figure"):
        monkeypatch.setattr(module, each, lambda: "as written", raising=False)
    for each in ("PAGE", "README", "LOSSES_PAGE", "ADVANTAGES_PAGE", "PATH"):
        path = tmp_path / each
        path.write_text("as written")
        monkeypatch.setattr(module, each, path, raising=False)
    assert module.main(["--check"]) == 0
    getattr(module, page).write_text(text)
    assert module.main(["--check"]) == 1
    assert f"{page} is stale" in capsys.readouterr().out


def test_links_between_pages_lead_somewhere():
    anchor = script("generate").anchor
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
    for page in pages:
        text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text):
            target, _, heading = (link[0] or link[1]).partition("#")
            if target.startswith("http"):
                continue
            there = (page.parent / target).resolve() if target else page
            assert there.exists(), f"{page.name} → {target}"
            if heading:
                headings = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE)
                assert heading in map(anchor, headings), f"{page.name} → #{heading}"


def run_blocks(tmp_path: Path, text: str) -> int:
    page = tmp_path / "page.md"
    page.write_text(text)
    return script("run_blocks").main([str(page)])


@pytest.mark.parametrize(
    "text",
    [
        "```python\nx = 1\n```\nwords\n```python\nassert x == 1\n```\n",
        "```console\n$ trimtab --version\ntrimtab 9\n$ make nothing\n```\n",
        "```console\n$ trimtab explain geo-rs uper=2  # exit 2\n```\n",
        "```text\nnot python (\n```\n",
        "no code at all\n",
    ],
)
def test_blocks_that_work_pass(tmp_path, text):
    assert run_blocks(tmp_path, text) == 0


@pytest.mark.parametrize(
    "text",
    [
        "```python\nassert False\n```\n",
        "```python\nx = (\n```\n",
        "```python\nimport warnings\nwarnings.warn('no')\n```\n",
        "```python\nimport trimtab\ntrimtab.Correction()\n```\n",
        "```console\n$ trimtab explain geo-rs uper=2\n```\n",
        "```console\n$ trimtab presets  # exit 2\n```\n",
    ],
)
def test_blocks_that_fail_are_reported_by_page_and_line(tmp_path, text, capsys):
    assert run_blocks(tmp_path, text) == 1
    assert re.match(r".*page\.md:2: ", capsys.readouterr().err)


def test_each_page_has_a_namespace_of_its_own(tmp_path):
    (tmp_path / "one.md").write_text("```python\nx = 1\n```\n")
    (tmp_path / "two.md").write_text("```python\nx\n```\n")
    assert script("run_blocks").main([str(tmp_path / "one.md"), str(tmp_path / "two.md")]) == 1


def test_the_table_of_laws_is_what_the_script_writes_and_our_own_column_is_fresh():
    laws = script("laws")
    kept = json.loads(laws.KEPT.read_text(encoding="utf-8"))
    assert laws.PAGE.read_text(encoding="utf-8") == laws.page_with(
        laws.PAGE.read_text(encoding="utf-8"), laws.written(kept)
    )
    own = ADAPTERS["trimtab"]
    fresh = {ruling.law.name: ruling.ruling for ruling in check(own, cases=2)}
    assert {law: facts["ruling"] for law, facts in kept["trimtab"]["laws"].items()} == fresh
    assert set(fresh.values()) == {"holds"}
    for name, facts in kept.items():
        broken = {question for law in facts["laws"].values() for question in law["broken"]}
        assert broken == set(ADAPTERS[name].known), name


def test_the_page_of_laws_says_each_law_in_its_own_words():
    page = (ROOT / "docs" / "laws.md").read_text(encoding="utf-8")
    for law in LAWS.values():
        assert f"| {law.name} | {law.sentence} | {law.breaks} |" in page
