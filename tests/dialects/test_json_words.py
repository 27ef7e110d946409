"""Settings by their full names in one JSON object that a command is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.dialects import read
from trimtab.dialects.sources.launch import launches
from trimtab.dialects.sources.unknown import Unknown
from trimtab.errors import ConfigError


def keys(text: str) -> dict[str, object]:
    return launches(text)[0].keys


def test_full_names_in_a_json_object_are_settings() -> None:
    found = keys("""python a.py --set '{"trainer.a.b": 0.5, "trainer.c": {"d": [1, 2]}, "e.f": false}'""")
    assert {"trainer.a.b": 0.5, "trainer.c.d": [1, 2], "e.f": False}.items() <= found.items()


def test_an_object_of_plain_names_is_the_value_of_its_flag() -> None:
    assert set(keys("""python a.py --runtime-env '{"env_vars": {"A": "1"}}' --b 2""")) == {"runtime_env", "b"}


def test_a_value_that_the_file_does_not_set_is_unknown_alone() -> None:
    found = keys("""python a.py --set "{\\"x.y\\": $GIVEN, \\"x.z\\": 3, \\"x.w\\": \\"$GIVEN\\"}" """)
    assert found["x.z"] == 3
    assert isinstance(found["x.y"], Unknown)
    assert isinstance(found["x.w"], Unknown)


@pytest.mark.parametrize("text", ['{"a.b": ', '{"a.b": 1} rest', '["a.b"]', "{a.b: 1", '{"a.b": NaN_}'])
def test_what_is_no_object_stays_a_value(text: str) -> None:
    assert set(keys(f"python a.py --set '{text}'")) == {"set"}


def test_a_correction_that_depends_on_a_variable_inside_is_refused_by_its_name(tmp_path: Path) -> None:
    section = "trainer.algorithm.off_policy_correction"
    inside = f'{{"{section}.tis_ratio_type": "token", "{section}.token_tis_ratio_clip_high": $CAP}}'
    text = "python -m skyrl.tinker.api --backend-config " + '"' + inside.replace('"', '\\"') + '"\n'
    file = tmp_path / "run.sh"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"token_tis_ratio_clip_high depends on \$CAP"):
        read("skyrl", file)
