"""What came of a check, for machines and for pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trimtab.check.ask import Judgement, Ruling, version_named
from trimtab.check.script import script_of
from trimtab.check.subject import Subject


def check_facts(subject: Subject, rulings: Sequence[Ruling], cases: int, seed: int) -> dict[str, Any]:
    """Everything, as plain data."""
    return {
        "subject": subject.name,
        "version": version_named(subject),
        "tried": list(subject.tried),
        "cases": cases,
        "seed": seed,
        "laws": [_law_facts(subject, ruling) for ruling in rulings],
    }


def _law_facts(subject: Subject, ruling: Ruling) -> dict[str, Any]:
    return {
        "law": ruling.law.name,
        "sentence": ruling.law.sentence,
        "ruling": ruling.ruling,
        "why": ruling.why,
        "answers": [_answer_facts(subject, ruling, answer) for answer in ruling.answers],
    }


def _answer_facts(subject: Subject, ruling: Ruling, answer: Judgement) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "question": answer.question.name,
        "sentence": answer.question.sentence,
        "setup": answer.setup.name,
        "function": None if answer.asked is None else answer.asked.target,
        "ruling": answer.ruling,
        "why": answer.why,
    }
    if answer.ruling == "broken":
        facts["known"] = subject.known.get(answer.question.name)
        facts["script"] = script_of(subject, ruling.law, answer)
    return facts


def check_markdown(subject: Subject, rulings: Sequence[Ruling]) -> str:
    """A table of laws, with the numbers of what is broken."""
    version = version_named(subject)
    lines = [
        f"`trimtab check` of {subject.name}{f' {version}' if version else ''}:",
        "",
        "| law | | |",
        "| --- | --- | --- |",
    ]
    for ruling in rulings:
        why = ruling.why
        if ruling.ruling == "broken":
            why = "; ".join(
                dict.fromkeys(f"{each.question.name} ({each.setup.name}): {each.why}" for each in ruling.broken)
            )
        text = why.replace("|", "\\|").replace("\n", " ")
        lines.append(f"| **{ruling.law.name}**: {ruling.law.sentence} | {ruling.ruling} | {text} |")
    return "\n".join(lines) + "\n"
