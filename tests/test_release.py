"""One version: that of the package, which the changelog and the citation name too."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

import trimtab

ROOT = Path(__file__).parents[1]


def test_the_version_stands_in_the_changelog_below_what_is_not_released_yet():
    titles = re.findall(r"^## \[(.+?)\](?: - (\d{4}-\d\d-\d\d))?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert titles[0] == ("Unreleased", "")
    assert titles[1][0] == trimtab.__version__
    assert titles[1][1], "a release has a date"


def test_whoever_cites_it_cites_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == trimtab.__version__
    assert citation["license"] == "Apache-2.0"
    released = re.search(
        rf"^## \[{re.escape(trimtab.__version__)}\] - (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert released
    assert str(citation["date-released"]) == released[1]
