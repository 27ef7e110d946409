"""Tables of docs/risks.md: which keys of each framework matter, and what each engine's recorded log-prob is."""

from __future__ import annotations

from tables import table

from trimtab.dialects.engines import MODES, RECORDINGS
from trimtab.dialects.registry import SIGNATURES
from trimtab.dialects.risk_keys import RISK_KEYS, RiskKeys
from trimtab.dialects.risks import EXPERT_COUNTS


def _keys(*names: str) -> str:
    return ", ".join(f"`{each}`" for each in names if each) or "–"


def _settings(row: RiskKeys) -> str:
    written = [
        f"{key}: {str(value).lower() if isinstance(value, bool) else value}" for key, value in row.correct.items()
    ]
    return _keys(*written) if row.correct else row.without.rstrip(".")


def risk_table() -> str:
    """One row per framework."""
    head = (
        "framework",
        "asynchronous",
        "age",
        "LoRA",
        "routing replay",
        "KV cache, partial rollouts",
        "micro-batches",
        "correction",
    )
    rows = [
        (
            SIGNATURES[name].title,
            _keys(*row.asynchronous, row.async_section and f"{row.async_section}.*", *row.async_functions),
            _keys(*row.age),
            _keys(*row.lora),
            _keys(*row.replay),
            _keys(*row.cache_kept, *row.cache_renewed, *row.partial, *row.partial_masked),
            _keys(*row.micro_batches),
            _settings(row),
        )
        for name, row in RISK_KEYS.items()
    ]
    return f"{table(head, rows)}\nA model's `config.json` beside the file is asked for {_keys(*EXPERT_COUNTS)}.\n"


def _said(value: bool | None, yes: str = "in", no: str = "out") -> str:
    return "unknown" if value is None else yes if value else no


def engine_table() -> str:
    """One row per engine and mode."""
    head = ("engine", "mode", "temperature", "penalties", "top-p, top-k, min-p", "prompt log-probs", "source")
    return table(
        head,
        [
            (each.engine, each.mode, _said(each.temperature), _said(each.penalties), each.cut or "unknown", each.prompt or "unknown",
             each.source)
            for each in MODES
        ],
    )  # fmt: skip


def recording_table() -> str:
    """One row per framework and engine."""
    head = (
        "framework",
        "engine",
        "mode it asks for",
        "trainer divides by the temperature",
        "trainer truncates",
        "source",
    )
    return table(
        head,
        [
            (
                SIGNATURES[each.framework].title,
                each.engine,
                each.mode or "depends",
                _said(each.tempered, "yes", "no"),
                _said(each.truncates, "yes", "no line found"),
                each.source,
            )
            for each in RECORDINGS
        ],
    )
