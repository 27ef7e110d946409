"""`trimtab convert --in-place`: a folder of files in every shape their users write them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from trimtab.cli.app import app
from trimtab.dialects import read
from trimtab.dialects.writing.migrate import migrate
from trimtab.errors import ConfigError

CAP = "behave_imp_weight_cap"
MODE = "behave_imp_weight_mode"
SECTION = "{level: token, metric: ratio, upper: 5.0, action: mask}"


def block(indent: int, step: int = 2, end: str = "\n", comment: str = "", upper: str = "5.0") -> str:
    inner = ("level: token", "metric: ratio", f"upper: {upper}", "action: mask")
    lines = [f"{' ' * indent}rejection_sampling:{comment}", *(f"{' ' * (indent + step)}{line}" for line in inner)]
    return end.join(lines) + end


MODES = ("token_mask", "token_truncate", "sequence_mask", "sequence_truncate", "disabled")
REWRITTEN: dict[str, tuple[str, str]] = {
    "plain.yaml": (f"actor:\n  {CAP}: 5.0\n", f"actor:\n{block(2)}"),
    "comments.yaml": (
        f"# run\nactor:\n  lr: 1e-6  # warm\n  {CAP}: 5.0  # Bound\n\n  # clip\n  eps_clip: 0.2\n",
        f"# run\nactor:\n  lr: 1e-6  # warm\n{block(2, comment='  # Bound')}\n  # clip\n  eps_clip: 0.2\n",
    ),
    "apart.yaml": (
        f"actor:\n  {CAP}: 5.0  # one\n  # between\n  lr: 1\n  {MODE}: token_mask  # two\n",
        f"actor:\n{block(2, comment='  # one; two')}  # between\n  lr: 1\n",
    ),
    "crlf.yaml": (f"actor:\r\n  {CAP}: 5.0\r\n  lr: 1\r\n", f"actor:\r\n{block(2, end=chr(13) + chr(10))}  lr: 1\r\n"),
    "no-end.yaml": (f"actor:\n  lr: 1\n  {CAP}: 5.0", f"actor:\n  lr: 1\n{block(2)}".rstrip("\n")),
    "four.yaml": (f"actor:\n    {CAP}: 5.0\n", f"actor:\n{block(4, 4)}"),
    "odd.yaml": (f"actor:\n   {CAP}: 5.0\n   lr: 1\n", f"actor:\n{block(3, 3)}   lr: 1\n"),
    "quoted.yaml": (f"\"actor\":\n  '{CAP}': \"5.0\"\n", f'"actor":\n{block(2)}'),
    "bom.yaml": (f"\ufeffactor:\n  {CAP}: 5.0\n", f"\ufeffactor:\n{block(2)}"),
    "after.yaml": (f"actor:\n  {CAP}: 5.0\n# after\n\nref: {{}}\n", f"actor:\n{block(2)}# after\n\nref: {{}}\n"),
    "deeper.yaml": (f"exp:\n  actor:\n    {CAP}: 5.0\n", f"exp:\n  actor:\n{block(4)}"),
    "unicode.yaml": (f"actor:\n  name: größer 漢字\n  {CAP}: 5.0\n", f"actor:\n  name: größer 漢字\n{block(2)}"),
    "dotted.yaml": (f"actor.{CAP}: 5.0\n", f"actor:\n{block(2)}"),
    "both.yaml": (
        f"actor:\n  {CAP}: 5.0\n  rejection_sampling:\n    level: token\n    upper: 3.0\n",
        "actor:\n  rejection_sampling:\n    level: token\n    upper: 3.0\n",
    ),
    "flow.yaml": (
        f"actor: {{{CAP}: 5.0, lr: 1}} # x\n",
        f"actor: {{rejection_sampling: {SECTION}, lr: 1}} # x\n",
    ),
    "flow-alone.yaml": (f"actor: {{{CAP}: 5.0}}\n", f"actor: {{rejection_sampling: {SECTION}}}\n"),
    "flow-last.yaml": (
        f"actor: {{lr: 1, {MODE}: token_mask, eps: 2, {CAP}: 5.0}}",
        f"actor: {{lr: 1, rejection_sampling: {SECTION}, eps: 2}}",
    ),
    "flow-lines.yaml": (
        f"actor: {{\n  lr: 1,  # warm\n  {CAP}: 5.0,  # cap\n  {MODE}: token_mask  # mode\n}}\n",
        f"actor: {{\n  lr: 1,  # warm\n  rejection_sampling: {SECTION},  # cap\n    # mode\n}}\n",
    ),
    "merge.yaml": (
        f"base: &b\n  lr: 1\nactor:\n  <<: *b\n  {CAP}: 5.0\n",
        f"base: &b\n  lr: 1\nactor:\n  <<: *b\n{block(2)}",
    ),
    "anchored.yaml": (
        f"x: &lr 1\nactor:\n  lr: *lr\n  {CAP}: 5.0\n",
        f"x: &lr 1\nactor:\n  lr: *lr\n{block(2)}",
    ),
    "several.yaml": (
        f"---\nactor:\n  {CAP}: 5.0\n---\nactor:\n  {CAP}: 4.0 # b\n...\n---\nother: 1\n",
        f"---\nactor:\n{block(2)}---\nactor:\n{block(2, comment='  # b', upper='4.0')}...\n---\nother: 1\n",
    ),
    "off.yaml": (
        f"actor:\n  {MODE}: disabled\n  lr: 1\n",
        "actor:\n  rejection_sampling: null\n  lr: 1\n",
    ),
    "sub/deep/nested.yml": (f"actor:\n  {CAP}: 5.0\n", f"actor:\n{block(2)}"),
}  # fmt: skip
LEFT: dict[str, tuple[str | bytes, str]] = {
    "shared.yaml": (f"actor: &a\n  {CAP}: 5.0\nother: *a\n", "belongs to an anchor that others use too (line 1)"),
    "shared-value.yaml": (f"x: &cap 5.0\nactor:\n  {CAP}: *cap\n", "belongs to an anchor that others use too (line 1)"),
    "merged.yaml": (f"b: &b\n  {CAP}: 5.0\nactor:\n  <<: *b\n", "comes from an anchor by way of <<"),
    "twice.yaml": (f"actor:\n  {CAP}: 5.0\n  {CAP}: 4.0\n", f"the key '{CAP}' twice at line 3"),
    "broken.yaml": ("a: [1\n", "needs to be YAML"),
    "binary.yaml": (b"\xff\xfe\x00", "needs to be UTF-8"),
    "comma.yaml": (f"actor: {{lr: 1, {MODE}: token_mask, {CAP}: 5.0 # c\n , eps: 2}}\n", "comment before its comma"),
    "misspelt.yaml": ("actor:\n  behave_imp_weight_capp: 5.0\n", "Did you mean"),
    "wrong.yaml": (f"actor:\n  {CAP}: many\n", "needs a number"),
}
OTHERS: dict[str, tuple[str, str]] = {
    "compose.yaml": ("services: {web: {image: x}}\n", "AReaL reads none of its keys"),
    "list.yaml": ("- 1\n", "it holds no keys"),
    "empty.yaml": ("", "it is empty"),
}
TODAY = {
    "today.yaml": "actor:\n  rejection_sampling: {level: token}\n",
    "clip.yaml": "actor: {eps_clip: 0.2}\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """About forty files, a neighbour that is no YAML, and links that lead in circles."""
    texts: dict[str, str | bytes] = {name: pair[0] for name, pair in {**REWRITTEN, **LEFT, **OTHERS}.items()}
    for name, text in {**texts, **TODAY}.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    (tmp_path / "notes.txt").write_text(f"{CAP}: 5.0\n")
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "self.yaml").symlink_to(tmp_path / "self.yaml")
    (tmp_path / "zlink.yaml").symlink_to(tmp_path / "plain.yaml")
    return tmp_path


def run(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["convert", "--from", "areal", "--to", "areal", "--in-place", *words])
    return done.exit_code, done.stdout, done.stderr


def contents(folder: Path) -> dict[str, bytes]:
    files = [each for each in folder.rglob("*") if each.is_file() and not each.is_symlink()]
    return {str(each.relative_to(folder)): each.read_bytes() for each in files}


SUMMARY = (
    f"{len(REWRITTEN)} {{}}, {len(TODAY)} need nothing, {len(LEFT) + 1} refused, {len(OTHERS)} not AReaL settings.\n"
)


def test_a_folder_is_rewritten_where_it_must_be_and_every_other_byte_stays(folder: Path) -> None:
    before = contents(folder)
    code, out, err = run(str(folder), "--dry-run")
    assert contents(folder) == before
    assert out.endswith(SUMMARY.format("would be rewritten"))
    assert code == 1  # some were refused
    assert run(str(folder))[1].endswith(SUMMARY.format("rewritten"))
    after = contents(folder)
    assert {name: after[name].decode() for name in REWRITTEN} == {name: new for name, (_, new) in REWRITTEN.items()}
    assert {name: text for name, text in after.items() if name not in REWRITTEN} == {
        name: text for name, text in before.items() if name not in REWRITTEN
    }
    lines = err.splitlines()
    for name, (_, reason) in {**LEFT, **OTHERS, "self.yaml": ("", "Too many levels")}.items():
        assert any(f"/{name} " in line and reason in line for line in lines), name


def test_a_second_run_changes_nothing(folder: Path) -> None:
    run(str(folder))
    before = contents(folder)
    _, out, _ = run(str(folder))
    assert contents(folder) == before
    assert out.startswith("0 rewritten, ")


@pytest.mark.parametrize("name", REWRITTEN)
def test_what_was_rewritten_means_the_same(name: str) -> None:
    for one, other in zip(*(yaml.safe_load_all(text) for text in REWRITTEN[name]), strict=True):
        if "other" not in one:
            assert read("areal", one).correction == read("areal", other).correction


def test_a_rewritten_file_keeps_its_mode_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(REWRITTEN["plain.yaml"][0])
    file.chmod(0o640)
    assert run(str(file))[0] == 0
    assert file.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["run.yaml"]


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(REWRITTEN["plain.yaml"][0])

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    code, _, err = run(str(file))
    assert code == 1
    assert "No space left on device" in err
    assert file.read_text() == REWRITTEN["plain.yaml"][0]
    assert os.listdir(tmp_path) == ["run.yaml"]


def test_every_mode_of_before_reads_the_same_after() -> None:
    for mode in MODES:
        text = f"actor:\n  {MODE}: {mode}\n  {CAP}: 3.0\n"
        found = migrate("areal", text)
        assert found.changed
        assert read("areal", yaml.safe_load(found.text)).correction == read("areal", yaml.safe_load(text)).correction


def test_a_section_that_moves_elsewhere_goes_to_where_it_belongs() -> None:
    cap = "actor_rollout_ref:\n  actor:\n    tis_imp_ratio_cap: 2.0  # cap\n"
    new = "rollout_correction:\n    rollout_is: token\n    rollout_is_threshold: 2.0\n"
    assert migrate("verl", f"{cap}    clip_ratio_low: 0.2\nalgorithm:\n  gamma: 1.0\n  # end\n").text == (
        f"actor_rollout_ref:\n  actor:\n    # cap\n    clip_ratio_low: 0.2\nalgorithm:\n  gamma: 1.0\n  {new}  # end\n"
    )
    flow = migrate("verl", f"{cap}algorithm: {{gamma: 1.0}}\n").text
    assert yaml.safe_load(flow)["algorithm"] == {
        "gamma": 1.0,
        "rollout_correction": {"rollout_is": "token", "rollout_is_threshold": 2.0},
    }
    assert "actor_rollout_ref" not in flow
    with pytest.raises(ConfigError, match="nearest"):
        migrate("verl", "algorithm:\n  rollout_correction:\n    rollout_token_veto_threshold: 1e-4\n")
