"""verl: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.framework import Dialect, Version
from trimtab.dialects.verl import SIGNATURE, removed
from trimtab.dialects.verl.advantage import advantage_of
from trimtab.dialects.verl.correction import candidates, correction_of
from trimtab.dialects.verl.hints import HINTS
from trimtab.dialects.verl.keys import KEYS, LOSS_SECTION, SECTION
from trimtab.dialects.verl.loss import loss_of
from trimtab.dialects.verl.remarks import REMARKS

DIALECT = Dialect(
    SIGNATURE,
    version="0.9.1",
    versions=(
        Version("before #3694", ("tis_imp_ratio_cap",)),
        Version("#3694 until #3984", removed.LEVELS),
        Version(
            "#3984 until #4544",
            (
                "rollout_rs_threshold_lower",
                "rollout_token_veto_threshold",
                "bypass_old_logprob_for_rollout",
                "use_pure_rollout_correction",
                "use_policy_gradient",
            ),
        ),
    ),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    closed=(SECTION, LOSS_SECTION),
    entry_points=r"verl\..*|recipe\.dapo\..*|(?!recipe\.).*main_(ppo|dapo)\w*(\.py)?",
    implied=(
        (
            r"verl\.experimental\.(fully_async_policy|one_step_off_policy)\..*",
            {f"{SECTION}.bypass_mode": True, "actor_rollout_ref.rollout.calculate_log_probs": True},
        ),
    ),
    others=("rollout_is_fn", "enable", "distillation"),
    apart=(
        "A NaN log-prob is rejected by rollout_rs and makes rollout_is NaN; ours takes the token as never trained.",
        "The mean over a sequence divides by length + 1e-8; ours by the length.",
    ),
    candidates=candidates,
    hints=HINTS,
    outdated=removed.is_said,
)
