"""Files that commands write: whole, beside their place first, and through no link that somebody put there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trimtab.cli.show import write_file


def test_a_neighbour_that_somebody_foresaw_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f".out.yaml.{os.getpid()}.part").symlink_to(victim)
    write_file(tmp_path / "out.yaml", "text")
    assert (tmp_path / "out.yaml").read_text() == "text"
    assert victim.read_text() == "precious"


def test_a_name_that_was_foreseen_all_the_same_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda size: "known")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".out.yaml.known.part").symlink_to(victim)
    with pytest.raises(Exception, match="cannot be written: File exists"):
        write_file(tmp_path / "out.yaml", "text")
    assert victim.read_text() == "precious"


def test_the_rights_of_a_file_that_was_there_and_the_link_to_it_stay(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text("before")
    (tmp_path / "real.yaml").chmod(0o640)
    (tmp_path / "link.yaml").symlink_to("real.yaml")
    write_file(tmp_path / "link.yaml", "after")
    assert (tmp_path / "link.yaml").is_symlink()
    assert (tmp_path / "real.yaml").read_text() == "after"
    assert (tmp_path / "real.yaml").stat().st_mode & 0o777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.yaml", "real.yaml"]
