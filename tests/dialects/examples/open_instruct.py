"""Options of open-instruct worth looking up, with numbers its users write; what is refused, and what is passed over."""

from __future__ import annotations

from tests.dialects.examples.rows import Examples, each_name

EXAMPLES = Examples(
    corrections={
        "rho_clamp_upper_bound": {"rho_clamp_upper_bound": 2.0},
        "rho_mask_lower/upper_bound": {"rho_mask_lower_bound": 0.5, "rho_mask_upper_bound": 5.0},
        "rho_mask_sequence_level": {"rho_mask_sequence_level": True, "rho_mask_upper_bound": 1.1},
        "rho_mask_tv_divergence": {"rho_mask_tv_divergence": True, "rho_mask_upper_bound": 0.1},
    },
    objectives=each_name("loss_fn", ("dapo", "cispo"))
    | each_name("advantage_normalization_type", ("centered", "standard", "max_rl")),
    refused={
        "use_icepop: true (in no release)": {"use_icepop": True},
        "loss_fn: dppo": {"loss_fn": "dppo"},
        "rho bounds without 1": {"use_rho_correction": True, "rho_clamp_upper_bound": 0.5},
    },
    passed=(
        ("async_steps, active_sampling", "which rows reach the step"),
        ("alpha, ref_policy_update_freq", "when the reference moves"),
        ("use_liger_grpo_loss, record_entropy", "how it is computed, and what is logged"),
    ),
)
