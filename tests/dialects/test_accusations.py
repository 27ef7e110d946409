"""Whoever accuses a framework says where in its code, and of which version; a release that mended it is no longer accused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from trimtab.dialects import DIALECTS, read
from trimtab.dialects.framework import defect
from trimtab.dialects.lookup import look_up

PLACE = re.compile(r"[\w./-]+\.\w+:\d+(-\d+)?( [\w.]+)?")
"""A path in the framework's package or repository, the line, and the class or function it is in: `utils/data.py:1691 KLEstimator`."""
WITHOUT_SOURCES: set[str] = set()
"""Frameworks whose remarks do not name their places yet."""


@pytest.mark.parametrize("name", [name for name in DIALECTS if name not in WITHOUT_SOURCES])
def test_every_accusation_names_its_place(name: str) -> None:
    accused = [each for each in DIALECTS[name].remarks if each.level != "note"]
    nameless = [f"{each.key}: {each.text}" for each in accused if not PLACE.fullmatch(each.source)]
    assert not nameless, "\n".join(nameless)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_fix_names_a_release_and_a_first_release_is_one_that_can_be_read(name: str) -> None:
    dialect = DIALECTS[name]
    for each in dialect.remarks:
        assert re.match(r"(\d+(\.\d+)+|[0-9a-f]{7,})(,|$)", each.fixed) or not each.fixed, each
        assert each.since in ("", *dialect.releases), each


def test_a_remark_is_silent_of_a_release_that_no_longer_does_so() -> None:
    dialect = replace(DIALECTS["trl"], releases=("1.15.0", "1.16.0", "1.17.0"))
    remark = defect("beta", lambda given: True, "It is so.", since="1.16.0", fixed="1.17.0, #1")
    held = {version: remark.holds(look_up(dialect, {"beta": 0.1}, version=version)) for version in dialect.releases}
    assert held == {"1.15.0": False, "1.16.0": True, "1.17.0": False}
    found = remark.finding(look_up(dialect, {"beta": 0.1}))
    assert found.sentence == "It is so. (TRL 1.16.0; fixed in 1.17.0, #1.)"


def test_a_release_that_is_not_read_is_refused_with_those_that_are() -> None:
    with pytest.raises(
        Exception, match=r"version needs a release of TRL that is read here, got '0\.1'\. Known: 1\.16\.0"
    ):
        read("trl", {"beta": 0.1}, version="0.1")


def test_a_file_is_read_as_the_release_that_brought_its_youngest_key_unless_another_is_chosen() -> None:
    settings = {"actor": {"use_cispo_loss": True, "eps_clip_higher": 4.0}}
    assert read("areal", {"actor": {"eps_clip": 0.2}}).version == "1.0.4"
    assert read("areal", settings).version == "2.0.0"
    chosen = read("areal", settings, version="1.0.4")
    assert chosen.version == "1.0.4"
    assert any("use_cispo_loss was added in AReaL 2.0.0" in each.text for each in chosen.findings)
