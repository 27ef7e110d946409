"""What is printed to install can be typed: the command for a clone, a wheel and the index, and no page that promises more."""

from __future__ import annotations

import importlib.metadata
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from trimtab.installed import EXTRAS, extra_for, install_command, packages_of, remedy_for

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize(
    ("source", "command"),
    [
        (
            {"url": "file:///home/me/a%20clone", "dir_info": {"editable": True}},
            "pip install -e '/home/me/a clone[ray]'",
        ),
        ({"url": "file:///tmp/clone", "dir_info": {}}, "pip install '/tmp/clone[ray]'"),
        ({"url": "file:///tmp/trimtab-1-py3-none-any.whl"}, "pip install '/tmp/trimtab-1-py3-none-any.whl[ray]'"),
        ({"url": "https://example.org/trimtab.git", "vcs_info": {}}, "pip install 'trimtab[ray]'"),
        (None, "pip install 'trimtab[ray]'"),
    ],
)
def test_an_extra_comes_from_where_trimtab_came_from(
    source: dict[str, object] | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = None if source is None else json.dumps(source)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: SimpleNamespace(read_text=lambda _: text))
    assert install_command("ray") == command


def test_a_missing_module_is_answered_with_its_extra() -> None:
    assert extra_for("pyarrow.parquet") == "train"
    assert remedy_for("torch.nn") == "Install it: pip install torch"
    assert remedy_for("numba") == f"Install the extra [fast]: {install_command('fast')}"
    assert remedy_for("nothing_of_ours") is None
    assert all(packages_of(extra) for extra in EXTRAS)


def test_no_page_installs_from_an_index_that_does_not_have_it() -> None:
    """On the day of publication this test goes, and the section Install of docs/start.md gets a row."""
    wrong = [
        f"{page.relative_to(ROOT)}: {line}"
        for page in PAGES
        for line in page.read_text(encoding="utf-8").splitlines()
        if re.search(r"pip install .*(?<![\w./-])'?trimtab(?![\w./-])", line)
    ]
    assert not wrong, "\n".join(wrong)
