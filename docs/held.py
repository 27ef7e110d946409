"""Which tests hold a correction, by what its value has in it: a gate's metric, how it is gathered, when it acts, a weight's level."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.config.correction import BY_PREFIX, Correction, Gate

VALUES, LAWS = "tests/core/test_values.py", "tests/laws/test_corrections.py"


def _gates(said: Callable[[Gate], bool]) -> Callable[[Correction], bool]:
    return lambda rule: any(said(gate) for gate in rule.gates)


def _level(rule: Correction) -> str:
    return "one" if rule.weight is None else rule.weight.level


def _bounded(rule: Correction) -> bool:
    return rule.weight is not None and (rule.weight.lower, rule.weight.upper) != (None, None)


HELD: tuple[tuple[str, Callable[[Correction], bool]], ...] = (
    (f"{VALUES}::test_each_metric_has_its_value_on_one_token", lambda rule: bool(rule.gates)),
    (
        f"{VALUES}::test_ratios_are_gathered_in_log_space",
        _gates(lambda gate: gate.metric == "ratio" and gate.agg in ("mean", "sum")),
    ),
    (
        f"{VALUES}::test_divergences_are_gathered_arithmetically",
        _gates(lambda gate: gate.metric != "ratio" and gate.agg in ("mean", "sum", "max", "min")),
    ),
    (
        f"{VALUES}::test_a_veto_condemns_a_sequence_for_one_token_on_either_side",
        _gates(lambda gate: gate.agg == "every"),
    ),
    (
        f"{VALUES}::test_a_budget_drops_the_worst_tokens_until_the_mean_fits",
        _gates(lambda gate: gate.agg == "budget"),
    ),
    (f"{VALUES}::test_reject_leaves_the_mask_and_zero_stays_in_it", lambda rule: bool(rule.gates)),
    (f"{VALUES}::test_when_limits_a_gate_to_some_tokens", _gates(lambda gate: gate.when != "always")),
    (f"{VALUES}::test_scope_decides_what_a_later_gate_sees", _gates(lambda gate: gate.scope == "kept")),
    (f"{VALUES}::test_weights_at_each_level", lambda rule: _level(rule) not in ("one", *BY_PREFIX)),
    (
        "tests/core/test_prefix.py::test_a_token_weighs_what_came_before_it_and_nothing_after",
        lambda rule: _level(rule) in BY_PREFIX,
    ),
    (f"{VALUES}::test_beyond_its_bounds_a_weight_is_truncated_or_zeroed_and_the_mask_stays", _bounded),
    (f"{VALUES}::test_bypass_compares_current_with_behavior", lambda rule: rule.policies == "bypass"),
    (
        "tests/laws/test_centering.py::test_a_constant_advantage_has_no_gradient_on_average",
        lambda rule: rule.centering is not None,
    ),
    (
        "tests/losses/test_values.py::test_a_rejected_token_leaves_the_denominator_only_where_that_is_said",
        lambda rule: rule.denominator == "kept",
    ),
)
"""Values worked by hand: a test, and the rules that it holds."""
OF_EVERY = (
    f"{LAWS}::test_packed_equals_padded",
    f"{LAWS}::test_on_policy_data_is_exactly_neutral",
    f"{LAWS}::test_nothing_under_a_false_mask_changes_anything",
    f"{LAWS}::test_splitting_the_batch_changes_nothing",
)
"""Laws of every correction."""


def tests_of(name: str, rule: Correction) -> list[str]:
    """The tests of a preset, as pytest is given them: its own case first, then its parts by hand, then the laws."""
    own = "test_the_cases_of_the_examples_come_out_of_every_preset_as_the_engine_has_them"
    parts = [test for test, holds in HELD if holds(rule)]
    return [f"tests/explain/test_arithmetic.py::{own}[{name}]", *parts, *OF_EVERY]
