"""What there is to say about OpenRLHF: each finding as data."""

from __future__ import annotations

from trimtab.dialects.framework import Given, Remark
from trimtab.dialects.openrlhf.correction import correction_options


def _on(given: Given) -> bool:
    return correction_options(given)[0] != "off"


REMARKS = (
    Remark(
        "is_correction_level",
        "surprise",
        "With policy_loss_type gspo only on or off is read: the ratio becomes current/behavior, and mode, gating and threshold "
        "are ignored; use ppo to apply them.",
        lambda given: _on(given) and given["policy_loss_type"] == "gspo",
        source="models/loss.py:192 PolicyLoss.forward",
    ),
    Remark(
        "is_correction_level",
        "surprise",
        "At level seq the survivors keep their own token ratios as weights, unbounded; use level token with mode clip to bound "
        "them.",
        lambda given: correction_options(given)[:2] == ("seq", "mask") and given["policy_loss_type"] != "gspo",
        source="models/loss.py:239 PolicyLoss.forward",
    ),
    Remark(
        "is_correction_gating",
        "surprise",
        "binary_kl is one direction only, KL(behavior ‖ proximal), where KPop takes the larger of both, and at token level float32 "
        "rounding below 0 rejects tokens that are all but on policy; prefer level seq, or tv.",
        lambda given: (
            _on(given) and correction_options(given)[2] == "binary_kl" and given["policy_loss_type"] != "gspo"
        ),
        source="models/loss.py:229 PolicyLoss.forward",
    ),
    Remark(
        "is_correction_threshold",
        "note",
        "The default band [0.5, 5] at level seq can hardly fire on a geometric mean; others use 0.99 to 1.01.",
        lambda given: correction_options(given)[0] == "seq" and correction_options(given)[2:] == ("ratio", 0.5, 5.0),
    ),
    Remark(
        "is_correction_level",
        "note",
        "A row without tokens counts as filtered in is_filter_ratio, and its mean is 0/0 there.",
        lambda given: correction_options(given)[0] == "seq",
    ),
    Remark(
        "vllm_is_correction_type",
        "note",
        "enable_vllm_is_correction and vllm_is_* were renamed in 0.11.2; now is_correction_level, _mode and _threshold.",
        lambda given: given.is_on("enable_vllm_is_correction"),
    ),
    Remark(
        "use_kl_estimator_k3",
        "note",
        "use_kl_estimator_k3 is the flag of older versions; now kl.estimator k3.",
        lambda given: given.is_on("use_kl_estimator_k3"),
    ),
    Remark(
        "is_correction_type",
        "note",
        "is_correction_enable and is_correction_type are those of 0.10.4 to 0.11.1; now is_correction_level and _mode.",
        lambda given: given.is_on("is_correction_enable"),
    ),
    Remark(
        "is_correction_type",
        "defect",
        "is_correction_type is a flag of 0.10.4 to 0.11.1, where it acts only with is_correction_enable: that is not set, so nothing is "
        "corrected there. 0.11.2 knows neither; write is_correction_level.",
        lambda given: given.has("is_correction_type") and not given.is_on("is_correction_enable"),
        source="cli/train_ppo_ray.py:261",
    ),
    Remark(
        "use_icepop",
        "defect",
        "use_icepop is a flag of versions before 0.9.10, where it acts only with enable_vllm_is_correction: that is not set, so nothing is "
        "corrected there. 0.11.2 knows neither; write is_correction_level.",
        lambda given: given.is_on("use_icepop") and not given.is_on("enable_vllm_is_correction"),
        source="cli/train_ppo_ray.py:261",
    ),
    Remark(
        "loss_agg_mode",
        "surprise",
        "gspo forces a mean per sequence; loss_agg_mode {loss_agg_mode} is ignored.",
        lambda given: (
            given["policy_loss_type"] == "gspo"
            and given.has("loss_agg_mode")
            and given["loss_agg_mode"] == "token-mean"
        ),
        source="models/loss.py:152 PolicyLoss.__init__",
    ),
    Remark(
        "clip_range",
        "note",
        "Rewards are clipped to {clip_range} after the baseline is subtracted and divided by, not before.",
        lambda given: (
            given.speaks_of("advantage") and given.has("clip_range") and given["estimator"] not in ("gae", "reinforce")
        ),
    ),
    Remark(
        "gamma",
        "surprise",
        "gamma {gamma} is set to 1 for {estimator}; only gae and reinforce read it.",
        lambda given: given["gamma"] != 1 and given["estimator"] not in ("gae", "reinforce"),
        source="trainer/ppo_utils/experience_maker.py:310 RemoteExperienceMaker.compute_advantages_and_returns",
    ),
    Remark(
        "init_coef",
        "note",
        "Left out, a KL penalty of {init_coef} is paid in the reward; write --algo.kl.init_coef down to read it.",
        lambda given: (
            (given.speaks_of("advantage") or (given.speaks_of("loss") and given.whole))
            and not given.has("init_coef")
            and not given["use_loss"]
        ),
    ),
    Remark(
        "lambd",
        "note",
        "Left out, lambd is {lambd}; before 0.7.0 it was 0.95, which --set lambd=0.95 reads.",
        lambda given: (
            given.speaks_of("advantage")
            and given["estimator"] == "gae"
            and not given.has("lambd")
            and given.written("init_kl_coef", "init_coef") == "init_kl_coef"
        ),
    ),
    Remark(
        "kl.target",
        "note",
        "With a target the coefficient follows the measured KL; init_coef is only where it starts.",
        lambda given: given.is_on("kl.target"),
    ),
    Remark(
        "policy_loss_type",
        "note",
        "GSPO here differentiates the mean ratio and forces a mean per sequence; verl and SkyRL keep each token's own gradient.",
        lambda given: given["policy_loss_type"] == "gspo",
    ),
    Remark(
        "use_loss",
        "surprise",
        "The KL loss is a token mean whatever loss_agg_mode says.",
        lambda given: bool(given["use_loss"]) and given["loss_agg_mode"] != "token-mean",
        source="trainer/ray/ppo_actor.py:331 ActorPPOTrainer.training_step",
    ),
    Remark(
        "estimator",
        "note",
        "Whitening divides by the biased variance, never below 1e-8.",
        lambda given: given["estimator"] in ("gae", "reinforce", "reinforce_baseline") and given.has("estimator"),
    ),
)
