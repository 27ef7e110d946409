"""Write the table of docs/laws.md: every framework that is installed here, every law.

`.venv-parity/bin/python docs/laws.py` asks all of them (several minutes); `python docs/laws.py trimtab` asks only those named and
keeps what the page says of the others. What was found is kept beside the page in laws.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from trimtab.check.laws import LAWS
from trimtab.check.load import ADAPTERS

HERE = Path(__file__).parent
PAGE, KEPT = HERE / "laws.md", HERE / "laws.json"
BEGIN, END = "<!-- written by docs/laws.py -->", "<!-- end of what docs/laws.py writes -->"
CELLS = {"holds": "holds", "broken": "**broken**", "does not apply": "–"}
TITLES = {"trl": "TRL", "skyrl": "SkyRL", "areal": "AReaL", "openrlhf": "OpenRLHF"}


def ask(name: str) -> dict[str, Any]:
    """One framework, in a process of its own: some of them change others as they are imported."""
    ran = subprocess.run(
        [sys.executable, "-m", "trimtab.cli", "check", name, "--json"], check=False, capture_output=True, text=True
    )
    if ran.returncode not in (0, 1):
        raise SystemExit(ran.stderr)
    return condense(json.loads(ran.stdout))


def condense(found: dict[str, Any]) -> dict[str, Any]:
    """What the page needs of it: each law, and of each broken question the first counterexample in numbers."""
    answers = [answer for law in found["laws"] for answer in law["answers"]]
    return {
        "version": found["version"],
        "functions": list(dict.fromkeys(each["function"] for each in answers if each["function"])),
        "setups": list(dict.fromkeys(each["setup"] for each in answers if each["setup"] != "none")),
        "laws": {law["law"]: _condense_law(law) for law in found["laws"]},
    }


def _condense_law(law: dict[str, Any]) -> dict[str, Any]:
    asked = [answer for answer in law["answers"] if answer["ruling"] != "does not apply"]
    broken: dict[str, str] = {}
    for answer in asked:
        if answer["ruling"] == "broken":
            broken.setdefault(answer["question"], f"{answer['why']} ({answer['setup']})")
    kept = {"ruling": law["ruling"], "asked": len({answer["question"] for answer in asked}), "broken": broken}
    return kept | ({"why": law["why"]} if law["ruling"] == "does not apply" else {})


def title(name: str) -> str:
    """A framework as it writes itself."""
    return TITLES.get(name, name)


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    """Laws down, frameworks across."""
    heads = [f"{title(name)}{'' if name == 'trimtab' else ' ' + facts['version']}" for name, facts in found.items()]
    lines = ["| law | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(heads)]
    for law in LAWS:
        lines.append(f"| {law} | " + " | ".join(cell(facts["laws"][law]) for facts in found.values()) + " |")
    return lines


def cell(law: dict[str, Any]) -> str:
    """One law of one framework; where it is broken, in how many of the questions asked."""
    count = f" {len(law['broken'])}/{law['asked']}" if law["broken"] else ""
    return CELLS[law["ruling"]] + count


def section(name: str, facts: dict[str, Any]) -> list[str]:
    """What was asked of one framework, what broke, and what could not be asked."""
    functions = ", ".join(f"`{each.partition(':')[2]}`" for each in facts["functions"])
    lines = [f"### {title(name)}", "", f"Asked: {functions}, with {'; '.join(facts['setups'])}.", ""]
    rows = [
        f"| {law}: {question} | {ADAPTERS[name].known.get(question, '')} | {_in_a_cell(numbers)} |"
        for law, each in facts["laws"].items()
        for question, numbers in each["broken"].items()
    ]
    if rows:
        lines += ["| law: question | what is so | in numbers |", "| --- | --- | --- |", *rows, ""]
    else:
        lines += ["Every law holds.", ""]
    lines += [f"*{law}* was not asked: {each['why']}.\n" for law, each in facts["laws"].items() if "why" in each]
    return lines


def _in_a_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def written(found: dict[str, dict[str, Any]]) -> str:
    """The part of the page between the marks."""
    lines = [BEGIN, "", *table(found), ""]
    for name, facts in found.items():
        lines += section(name, facts)
    return "\n".join([*lines, END])


def page_with(text: str, part: str) -> str:
    """The page with that part renewed."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + part + after


def main(names: list[str]) -> None:
    """Ask, keep, write."""
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    for name in names or list(ADAPTERS):
        print(name, flush=True)
        kept[name] = ask(name)
    found = {name: kept[name] for name in ADAPTERS if name in kept}
    KEPT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), written(found)), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
