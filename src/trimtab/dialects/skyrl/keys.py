"""The settings of SkyRL that concern us, with its defaults."""

from __future__ import annotations

from trimtab.dialects.framework import Key
from trimtab.dialects.values import choice, flag, nested, number, text

SECTION = "trainer.algorithm.off_policy_correction"
A = "trainer.algorithm"
KEYS = (
    Key(f"{SECTION}.tis_ratio_type", choice("token", "sequence")),
    Key(f"{SECTION}.token_tis_ratio_clip_high", number, 2.0),
    Key(f"{SECTION}.sequence_tis_ratio_clip_high", number, 5.0),
    Key(f"{SECTION}.sequence_mask_metric", choice("product", "geometric")),
    Key(f"{SECTION}.geo_mask_high", number, 1.01),
    Key(f"{SECTION}.geo_mask_low", number, 0.99),
    Key(f"{SECTION}.product_mask_high", number, 2.0),
    Key(f"{SECTION}.product_mask_low", number, 0.5),
    Key(f"{SECTION}.outlier_token_is_threshold_low", number),
    Key(f"{SECTION}.outlier_token_is_threshold_high", number),
    Key(f"{SECTION}.token_mask_is_threshold_low", number),
    Key(f"{SECTION}.token_mask_is_threshold_high", number),
    Key("trainer.algorithm.use_tis", flag, False, legacy=True),
    Key("trainer.algorithm.tis_imp_ratio_cap", number, -1.0, legacy=True),
    Key(f"{A}.policy_loss_type", text, "regular", part="loss"),
    Key(f"{A}.loss_reduction", text, "token_mean", part="loss"),
    Key(f"{A}.eps_clip_low", number, 0.2, part="loss"),
    Key(f"{A}.eps_clip_high", number, 0.2, part="loss"),
    Key(f"{A}.clip_ratio_c", number, 3.0, part="loss"),
    Key(f"{A}.max_seq_len", number, part="loss"),
    Key(f"{A}.cispo.cispo_eps_clip_low", number, 1.0, part="loss", was=("0.4.0", 0.0)),
    Key(f"{A}.cispo.cispo_eps_clip_high", number, 4.0, part="loss", was=("0.4.0", 5.0)),
    Key(f"{A}.cispo.cispo_anchor", choice("old", "rollout"), "old", since="0.4.0"),
    Key(f"{A}.sapo.tau_pos", number, 1.0, part="loss", also=(f"{A}.tau_pos",)),
    Key(f"{A}.sapo.tau_neg", number, 1.05, part="loss", also=(f"{A}.tau_neg",)),
    Key(f"{A}.dppo.dppo_type", choice("binary_tv", "binary_kl"), "binary_tv", part="loss"),
    Key(f"{A}.dppo.delta_low", number, 0.2, part="loss"),
    Key(f"{A}.dppo.delta_high", number, 0.2, part="loss"),
    Key(f"{A}.use_kl_loss", flag, True, part="loss"),
    Key(f"{A}.kl_loss_coef", number, 0.001, part="loss"),
    Key(f"{A}.kl_estimator_type", choice("k1", "abs", "k2", "k3"), "k3", part="loss"),
    Key(f"{A}.use_entropy_loss", flag, False, part="loss"),
    Key(f"{A}.entropy_loss_coef", number, 0.01, part="other"),
    *(Key(f"generator.sampling_params.{name}", number, part="other") for name in ("top_p", "top_k")),
    Key(f"{A}.enable_sample_support_replay", flag, False, part="other", since="0.4.0"),
    Key("generator.inference_engine.enable_return_sample_support_set", flag, False, part="other", since="0.4.0"),
    Key(f"{A}.score_centering", nested, also=(f"{SECTION}.score_centering",)),
    Key(f"{A}.use_kl_in_reward", flag, False, part="advantage"),
    Key(f"{A}.zero_variance_filter", flag, False, part="advantage"),
    Key(f"{A}.advantage_estimator", text, "grpo", part="advantage"),
    Key(f"{A}.grpo_norm_by_std", flag, True, part="advantage"),
    Key(f"{A}.gamma", number, 1.0, part="advantage"),
    Key(f"{A}.lambd", number, 1.0, part="advantage"),
    Key(f"{A}.advantage_batch_normalize", flag, False, part="advantage"),
)
