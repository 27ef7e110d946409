"""Write docs/frameworks.md from the dialects themselves.

`python docs/frameworks.py` writes it, `--check` says whether it is up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the examples are those of the tests
sys.path.insert(0, str(Path(__file__).parent))  # for those that load this file by its path

from tables import table

from tests.dialects.examples import EXAMPLES
from trimtab.config.presets import PRESETS, preset
from trimtab.dialects import DIALECTS, Reading, read, write
from trimtab.dialects.framework import Dialect, Remark
from trimtab.errors import ConfigError
from trimtab.explain.words import formulas

PAGE = Path(__file__).parent / "frameworks.md"

INTRO = """<!-- Written by docs/frameworks.py from src/trimtab/dialects; edit there. -->
# What each framework's options compute

`trimtab.dialects.read(framework, settings)` reads a framework's own keys as ours and reproduces the numbers it computes;
`trimtab explain --from NAME FILE` says the same about a file of yours, `trimtab convert --from NAME FILE --to OTHER` writes it
in another framework's keys, `trimtab compare A B` shows where two files differ. Below: every option with the formula it
computes as shipped, our value, and what is surprising about it; then what is refused, what is passed over, each of our presets in the
framework's keys, and every key that is read.
ℓ is the log-ratio of a token, r = e^ℓ.

A **defect** is never meant, a **surprise** rarely; `documented=True` gives what the documentation promises instead. Each is said of the
version that was checked, with the place in the framework's code, and with the release that fixed it where there is one.

"""


def page() -> str:
    """The whole page."""
    links = " · ".join(f"[{each.title}](#{each.title.lower()})" for each in DIALECTS.values())
    return INTRO + links + "\n\n" + "".join(section(each) for each in DIALECTS.values()).rstrip("\n") + "\n"


def section(dialect: Dialect) -> str:
    """One framework: its options, its losses and estimators, its keys."""
    rows = [option(dialect, name, settings) for name, settings in EXAMPLES[dialect.name].corrections.items()]
    parts = [
        f"## {dialect.title}\n\nRead: {dialect.version}.{other_versions(dialect)}\n\n",
        table(("option", "computes", "our value", "findings"), rows),
        "\n",
    ]
    others = [objective(dialect, name, settings) for name, settings in EXAMPLES[dialect.name].objectives.items()]
    if others:
        parts += [table(("option", "our value", "findings"), others), "\n"]
    parts += ["<details><summary>Every defect and surprise</summary>\n\n", accusations(dialect), "\n</details>\n\n"]
    parts += [table(("refused", "why"), refusals(dialect)), "\n"]
    parts += [table(("passed over", "because it is about"), EXAMPLES[dialect.name].passed), "\n"]
    parts += ["<details><summary>Our presets in its keys</summary>\n\n", in_its_keys(dialect), "\n</details>\n\n"]
    parts += ["Where ours departs on purpose: " + " ".join(dialect.apart) + "\n\n"] if dialect.apart else []
    keys = [(f"`{key.path}`", f"`{key.default!r}`", "removed" if key.legacy else key.part) for key in dialect.keys]
    return "".join(
        [
            *parts,
            "<details><summary>Every key that is read</summary>\n\n",
            table(("key", "default", "about"), keys),
            "\n</details>\n\n",
        ]
    )


def accusations(dialect: Dialect) -> str:
    """All that `explain` can accuse the framework of, whatever the file: with the versions and the place in its code."""
    rows = [
        (each.level, f"`{each.key}`", each.text, versions(dialect, each), f"`{each.source}`" if each.source else "")
        for each in sorted(dialect.remarks, key=lambda each: each.level)
        if each.level != "note"
    ]
    return table(("", "key", "what", "holds for", "in its code"), rows)


def versions(dialect: Dialect, remark: Remark) -> str:
    """Of which versions a remark holds."""
    first = remark.since or (dialect.releases or (dialect.version,))[0]
    if not remark.fixed and (remark.since or len(dialect.releases) > 1):
        first = f"{first} and later"
    return f"{first}; fixed in {remark.fixed}" if remark.fixed else first


def in_its_keys(dialect: Dialect) -> str:
    """Every preset as the framework would be told it; those that it cannot be told are named."""
    said: list[tuple[str, str]] = []
    unsaid: list[str] = []
    for name in PRESETS:
        try:
            lines = dotted(write(dialect.name, preset(name)).settings)
        except ConfigError:
            unsaid.append(f"`{name}`")
        else:
            said.append((f"`{name}`", "<br>".join(f"`{key}: {compact(value)}`" for key, value in lines)))
    rest = (
        f"\nIt does not support {', '.join(unsaid)}; `trimtab convert` then names what stands in the way.\n"
        if unsaid
        else ""
    )
    return table(("preset", "its settings"), said) + rest


def dotted(settings: dict[str, Any], under: str = "") -> list[tuple[str, Any]]:
    """Nested settings as keys with dots."""
    found: list[tuple[str, Any]] = []
    for key, value in settings.items():
        found += dotted(value, f"{under}{key}.") if isinstance(value, dict) else [(f"{under}{key}", value)]
    return found


def refusals(dialect: Dialect) -> list[tuple[str, str]]:
    """Options that `read` refuses, with what it says."""
    found: list[tuple[str, str]] = []
    for name, settings in EXAMPLES[dialect.name].refused.items():
        try:
            refused = [each.text for each in read(dialect.name, settings).refused]
        except ConfigError as error:
            refused = [str(error)]
        if not refused:
            raise AssertionError(f"{dialect.title} {name} is read")
        found.append((f"`{name}`", refused[0].removeprefix(dialect.title).lstrip(": ")))
    return found


def other_versions(dialect: Dialect) -> str:
    """The versions that a file shows by its keys, in a sentence."""
    said = [
        f"{each.name} (`{'`, `'.join(each.keys)}`{'' if each.is_read else ', not read'})" for each in dialect.versions
    ]
    return f" By their keys also: {'; '.join(said)}." if said else ""


def option(dialect: Dialect, name: str, settings: dict[str, Any]) -> tuple[str, str, str, str]:
    """One option of a correction."""
    reading = read(dialect.name, settings)
    if reading.correction is None:
        return f"`{name}`", "nothing that is supported", "", findings(reading)
    lines = formulas(reading.correction)[1:]
    return f"`{name}`", "<br>".join(lines), f"`{compact(reading.correction.settings())}`", findings(reading)


def objective(dialect: Dialect, name: str, settings: dict[str, Any]) -> tuple[str, str, str]:
    """One loss or estimator."""
    reading = read(dialect.name, settings)
    value = reading.advantage if reading.loss is None else reading.loss
    plain = compact(value.settings()) if value is not None else ""
    mode = "" if reading.reduction is None or reading.loss is None else f", reduction {reading.reduction.mode}"
    return f"`{name}`", f"`{plain}`{mode}", findings(reading)


def findings(reading: Reading) -> str:
    """Surprises and defects, the worst first."""
    worst = sorted((each for each in reading.findings if each.level != "note"), key=lambda each: each.level)
    return "<br>".join(f"**{each.level}** {each.sentence}" for each in worst)


def compact(settings: Any) -> str:
    """Settings on one line."""
    if isinstance(settings, dict):
        return "{" + ", ".join(f"{key}: {compact(value)}" for key, value in settings.items()) + "}"
    if isinstance(settings, list):
        return "[" + ", ".join(compact(each) for each in settings) + "]"
    if settings is None or isinstance(settings, bool):
        return {None: "null", True: "true", False: "false"}[settings]
    return f"{settings:.6g}" if isinstance(settings, float) else str(settings)


def main(arguments: list[str]) -> int:
    """Write the page, or with --check compare it."""
    text = page()
    fresh = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
    if "--check" in arguments:
        sys.stdout.write(f"{PAGE.name} is {'up to date' if fresh else 'stale: run `python docs/frameworks.py`'}.\n")
        return int(not fresh)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
