"""Options of prime-rl worth looking up, with numbers its users write; what is refused, and what is passed over."""

from __future__ import annotations

from tests.dialects.examples.rows import Examples

EXAMPLES = Examples(
    corrections={
        "type: ipo": {"type": "ipo"},
        "score_centering": {"trainer": {"loss": {"type": "ipo", "score_centering": True}}},
        "type: icepop": {"type": "icepop"},
        "type: default (up to 559b4477)": {"type": "default", "kl_tau": 0.0},
    },
    objectives={"type: ppo": {"type": "ppo"}, "type: cispo": {"type": "cispo"}}
    | {
        f"algo.type: {name}": {"orchestrator": {"algo": {"type": name}}, "trainer": {"loss": {"type": "custom"}}}
        for name in ("grpo", "max_rl")
    }
    | {"ratio_type: token (removed)": {"trainer": {"loss": {"ratio_type": "token"}}}},
    refused={
        "score_centering with icepop": {"trainer": {"loss": {"type": "icepop", "score_centering": True}}},
        "algo.length_penalty": {"orchestrator": {"algo": {"type": "grpo", "length_penalty": "linear"}}},
        "algo.type: rae": {"orchestrator": {"algo": {"type": "rae"}}},
        "algo.type: hierarchical_grpo": {"orchestrator": {"algo": {"type": "hierarchical_grpo"}}},
        "algo.type: sft": {"orchestrator": {"algo": {"type": "sft"}}},
        "algo.type: echo": {"orchestrator": {"algo": {"type": "echo"}}},
        "kl_tau with ratio_type sequence (removed)": {
            "trainer": {"loss": {"ratio_type": "sequence", "kl_tau": 0.1}},
        },
    },
    passed=(
        ("max_off_policy_steps, filters", "which rows reach the step"),
        ("loss for sft, opd", "components other than rl"),
    ),
)
