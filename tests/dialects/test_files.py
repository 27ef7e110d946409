"""Files as people have them, in the manner of the frameworks' examples: each reads as its keys written down plainly."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from trimtab.dialects import read
from trimtab.dialects.recognise import recognise

FILES = Path(__file__).parent / "files"
BUILDS = ("Builds on", "settings are unknown")
A = "actor_rollout_ref.actor"
C = "algorithm.rollout_correction"


@dataclass(frozen=True)
class Expected:
    """The keys that a file sets and that concern us, the parts it leaves open, and words of what is said about it."""

    keys: dict[str, Any]
    refused: tuple[str, ...] = ()
    said: tuple[str, ...] = field(default=())


EXPECTED: dict[str, Expected] = {
    "tinker/annotated.py": Expected({"loss_fn": "ppo", "kl_penalty_coef": 0.0, "group_size": 8}),
    "tinker/blueprint.py": Expected(
        {"loss_fn": "cispo", "loss_fn_config": {"clip_low_threshold": 0.0, "clip_high_threshold": 5.0}}
    ),
    "open-instruct/config_of_the_model.sh": Expected(
        {"num_samples_per_prompt_rollout": 8, "clip_higher": 0.25, "beta": 0.0}
    ),
    "miles/function_named.sh": Expected(
        {"advantage_estimator": "grpo", "eps_clip": 0.2, "eps_clip_high": 0.3, "n_samples_per_prompt": 8}
    ),
    "slime/rewards_of_a_function.sh": Expected(
        {"advantage_estimator": "grpo", "eps_clip": 0.25, "n_samples_per_prompt": 4},
        said=("custom_reward_post_process_path", "judging by the name"),
    ),
    "slime/its_own_teacher.sh": Expected({"eps_clip": 0.25}, ("advantage",), ("is its own teacher", "opsd_beta")),
    "openrlhf/logprobs_of_the_sampler.sh": Expected(
        {
            "n_samples_per_prompt": 8,
            "advantage_estimator": "rloo",
            "init_kl_coef": 0.01,
            "use_kl_loss": True,
            "kl_estimator": "k2",
        },
        said=("use_vllm_logprobs", "judging by the name"),
    ),
    "ms-swift/defaults.sh": Expected(
        {"use_vllm": True, "num_generations": 8}, said=("beta is 0.04", "ms-swift's defaults apply")
    ),
    "trl/served_apart.py": Expected({"use_vllm": True, "num_generations": 2, "beta": 0.05}),
    "trl/grpo_by_its_own_text.py": Expected(
        {"importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 5e-4, "beta": 0.0},
        said=("the script's own text",),
    ),
    "areal/first_norms.yaml": Expected(
        {
            "actor.group_adv_norm": True,
            "actor.group_reward_norm": True,
            "actor.eps_clip": 0.3,
            "actor.reward_scaling": 5.0,
            "actor.kl_ctl": 0.0,
            "actor.use_decoupled_loss": True,
            "actor.recompute_logprob": True,
            "actor.behav_imp_weight_cap": 3.0,
        },
        said=("switches of the first versions",),
    ),
    "skyrl/estimator_after.sh": Expected(
        {"trainer.algorithm.eps_clip_high": 0.27, "trainer.algorithm.use_kl_loss": False},
        ("advantage",),
        ("no release up to 0.4.0",),
    ),
    "verl/recipe_of_ones_own.sh": Expected(
        {"algorithm.adv_estimator": "grpo", f"{A}.clip_ratio_high": 0.3}, said=("Not one of verl's own programs",)
    ),
    "miles/launcher.py": Expected(
        {
            "advantage_estimator": "grpo",
            "eps_clip": 0.2,
            "eps_clip_high": 0.28,
            "use_tis": True,
            "tis_clip": 3.0,
            "n_samples_per_prompt": 8,
        }
    ),
    "miles/partial.sh": Expected(
        {
            "advantage_estimator": "gspo",
            "eps_clip": 3e-4,
            "eps_clip_high": 4e-4,
            "use_tis": True,
            "n_samples_per_prompt": 8,
            "partial_rollout": True,
            "mask_offpolicy_in_partial_rollout": True,
        },
        said=("earlier weights drew",),
    ),
    "tinker/recipe.sh": Expected(
        {
            "group_size": 16,
            "loss_fn": "ppo",
            "loss_fn_config": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28},
        }
    ),
    "tinker/loop.py": Expected(
        {"loss_fn": "cispo", "loss_fn_config": {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0}}
    ),
    "tinker/config.py": Expected(
        {"loss_fn": "dro", "loss_fn_config": {"beta": 0.05}, "kl_penalty_coef": 0.0}, said=("takes the mask away",)
    ),
    "tinker/undocumented.sh": Expected({"loss_fn": "cispo", "group_size": 8}, ("loss",), ("not documented",)),
    "tunix/gsm8k.yaml": Expected(
        {
            "rollout_config": {"total_generation_steps": 768},
            "grpo_config": {"num_generations": 2, "num_iterations": 1, "beta": 0.08, "epsilon": 0.2},
        },
        said=("the ratio is 1", "pulls nowhere"),
    ),
    "tunix/agentic.yaml": Expected(
        {
            "training_mode": "agentic_grpo",
            "agentic_grpo_config": {
                "num_generations": 8,
                "beta": 0.0,
                "epsilon": 0.003,
                "epsilon_high": 0.005,
                "loss_algo": "gspo-token",
                "loss_agg_mode": "sequence-mean-token-mean",
                "advantage_estimator": "rloo",
                "sampler_is": "token",
                "sampler_is_threshold": 2.0,
            },
        }
    ),
    "tunix/ppo.yaml": Expected(
        {"ppo_config": {"gamma": 1.0, "gae_lambda": 0.95, "beta": 0.08, "epsilon": 0.2}}, said=("whole numbers",)
    ),
    "tunix/launch.sh": Expected(
        {
            "training_mode": "agentic_grpo",
            "agentic_grpo_config": {
                "num_generations": 8,
                "beta": 0.0,
                "epsilon": 0.2,
                "epsilon_high": 0.28,
                "loss_agg_mode": "token-mean",
                "sampler_is": "token",
            },
        }
    ),
    "tunix/script.py": Expected(
        {"num_generations": 4, "num_iterations": 2, "beta": 0.08, "epsilon": 0.2, "kl_loss_mode": "low_var_kl"}
    ),
    "tunix/dapo.py": Expected(
        {
            "num_generations": 8,
            "epsilon": 0.2,
            "epsilon_high": 0.28,
            "beta": 0.0,
            "loss_agg_mode": "token-mean",
            "overlong_buffer": {"enable": True},
        },
        ("advantage",),
        ("counts the characters",),
    ),
    "skyrl/tinker_server.sh": Expected(
        {
            "trainer.algorithm.policy_loss_type": "dual_clip",
            "trainer.algorithm.clip_ratio_c": 6.0,
            "trainer.algorithm.loss_reduction": "sequence_mean",
            "trainer.algorithm.use_kl_loss": False,
            "trainer.algorithm.off_policy_correction.sequence_mask_metric": "geometric",
            "trainer.algorithm.off_policy_correction.geo_mask_low": 0.98,
            "trainer.algorithm.off_policy_correction.geo_mask_high": 1.02,
        },
        said=("Clients of this server choose the loss",),
    ),
    "openrlhf/third_estimator.sh": Expected(
        {"advantage_estimator": "rloo", "n_samples_per_prompt": 4, "init_kl_coef": 1e-3, "kl_estimator": "k3"},
        said=("use_kl_estimator_k3",),
    ),
    "openrlhf/group_of_one.sh": Expected(
        {"eps_clip": 0.3}, ("advantage",), ("init_kl_coef: Belongs to the advantage",)
    ),
    "verl/penalty_of_old.sh": Expected(
        {"algorithm.adv_estimator": "gae", f"{A}.clip_ratio": 0.2, f"{A}.use_kl_loss": False},
        said=(
            "has no effect with these settings",
            "kl_ctrl.kl_coef",
            "Before 0.3, which brought it",
            "overlong_buffer.penalty_factor",
        ),
    ),
    "open-instruct/first_names.sh": Expected(
        {"clip_higher": 0.2, "beta": 0.02, "kl_estimator": "kl4"},
        said=("kl1 to kl4 became 0 to 3",),
    ),
    "areal/launched.sh": Expected(
        {"actor.eps_clip": 0.3},
        ("correction",),
        ("depends on recipes/config.yaml",),
    ),
    "skyrl/covariance.sh": Expected(
        {
            "trainer.algorithm.policy_loss_type": "clip_cov",
            "trainer.algorithm.use_kl_loss": True,
            "trainer.algorithm.kl_loss_coef": 0.002,
        },
        said=("divided by the counts of loss_reduction",),
    ),
    "slime/job_in_a_file.sh": Expected(
        {
            "advantage_estimator": "grpo",
            "eps_clip": 0.2,
            "eps_clip_high": 0.3,
            "use_tis": True,
            "tis_clip": 3.0,
            "n_samples_per_prompt": 8,
        }
    ),
    "slime/echoed_job.sh": Expected(
        {"advantage_estimator": "grpo", "eps_clip": 0.1, "use_kl_loss": True, "kl_loss_coef": 0.02}
    ),
    "slime/arrays_for_another.sh": Expected(
        {"advantage_estimator": "gspo", "eps_clip": 3e-4, "eps_clip_high": 4e-4},
        said=("LOSS_FLAGS", "No command in the file was seen to take these flags"),
    ),
    "openrlhf/penalty_in_the_loss.sh": Expected(
        {
            "algo.advantage.estimator": "rloo",
            "algo.kl.init_coef": 0.002,
            "algo.kl.use_loss": True,
            "algo.kl.estimator": "k3",
            "rollout.n_samples_per_prompt": 4,
        }
    ),
    "ms-swift/penalty_alone.sh": Expected({"beta": 0.1}),
    "trl/parsed_arguments.py": Expected(
        {
            "beta": 0.03,
            "epsilon_high": 0.28,
            "scale_rewards": False,
            "vllm_importance_sampling_correction": False,
        }
    ),
    "trl/settings_from_a_mapping.py": Expected(
        {"epsilon": 0.1, "epsilon_high": 0.25, "loss_type": "dapo"},
        ("correction",),
        ("depends on the mapping **more (line 8)",),
    ),
    "trl/somebodys_script.sh": Expected({"beta": 0.02}, said=("Pass the script to read its settings",)),
    "areal/first_version.yaml": Expected(
        {
            "actor.eps_clip": 0.3,
            "actor.use_decoupled_loss": True,
            "actor.recompute_logprob": True,
            "actor.behav_imp_weight_cap": 4.0,
        },
        said=("ppo.kl_ctl", "judging by the name"),
    ),
    "nemo-rl/orphan_with_a_detail.yaml": Expected(
        {
            "loss_fn.sequence_level_importance_ratios": True,
            "loss_fn.token_level_loss": False,
            "loss_fn.ratio_clip_min": 0.1,
            "loss_fn.ratio_clip_max": 0.2,
        },
        ("correction",),
        BUILDS,
    ),
    "verl/array_of_overrides.sh": Expected(
        {
            f"{A}.clip_ratio_low": 0.2,
            f"{A}.clip_ratio_high": 0.28,
            f"{A}.use_kl_loss": False,
            "data.max_response_length": 8192,
            "algorithm.adv_estimator": "grpo",
            f"{C}.rollout_is": "token",
            f"{C}.rollout_is_threshold": 2.0,
        }
    ),
    "verl/arrays.sh": Expected(
        {
            "algorithm.adv_estimator": "grpo",
            f"{C}.rollout_rs": "seq_mean_k1",
            f"{C}.rollout_rs_threshold": "0.99_1.01",
        }
    ),
    "verl/branch_unknown.sh": Expected(
        {f"{A}.clip_ratio_low": 0.1, f"{A}.loss_agg_mode": "token-mean"}, ("correction",), ("$LEVEL (line 1)",)
    ),
    "verl/branch_known.sh": Expected({f"{C}.rollout_is": "token", f"{C}.rollout_is_threshold": 3}),
    "verl/first_argument.sh": Expected({f"{C}.rollout_is": "sequence", f"{C}.rollout_is_threshold": 1.5}),
    "verl/needed_argument.sh": Expected({"algorithm.adv_estimator": "grpo"}, ("correction",), ("$1 (line 1)",)),
    "verl/comment_inside.sh": Expected(
        {"algorithm.adv_estimator": "rloo", f"{A}.clip_ratio_low": 0.1, f"{A}.clip_ratio_high": 0.3},
        said=("line 3", "passes nothing that follows"),
    ),
    "verl/heredoc.sh": Expected(
        {
            "algorithm.adv_estimator": "grpo",
            "algorithm.norm_adv_by_std_in_grpo": False,
            f"{A}.loss_agg_mode": "seq-mean-token-mean",
        }
    ),
    "verl/ray_submit.sh": Expected(
        {"algorithm.adv_estimator": "reinforce_plus_plus", "algorithm.gamma": 1.0, f"{C}.rollout_is": "token"}
    ),
    "verl/functions.sh": Expected(
        {
            "algorithm.adv_estimator": "grpo",
            f"{A}.kl_loss_coef": 0.01,
            f"{A}.use_kl_loss": True,
            f"{A}.kl_loss_type": "low_var_kl",
        }
    ),
    "verl/several_commands.sh": Expected(
        {"algorithm.adv_estimator": "grpo", f"{A}.clip_ratio_low": 0.2, f"{A}.clip_ratio_high": 0.24}
    ),
    "verl/eval_string.sh": Expected(
        {"algorithm.adv_estimator": "grpo", f"{C}.rollout_is": "token", f"{C}.rollout_is_threshold": 4.0}
    ),
    "verl/loop.sh": Expected({f"{C}.rollout_is": "token", f"{C}.rollout_is_threshold": 3.5}),
    "verl/old_cap.sh": Expected(
        {f"{A}.tis_imp_ratio_cap": 2, "algorithm.adv_estimator": "grpo"}, said=("removed in #3694",)
    ),
    "verl/old_levels.yaml": Expected(
        {
            "algorithm.rollout_is": True,
            "algorithm.rollout_is_level": "token",
            "algorithm.rollout_is_mode": "truncate",
            "algorithm.rollout_is_threshold": 2.0,
            "algorithm.rollout_is_veto_threshold": None,
        }
    ),
    "verl/references.yaml": Expected(
        {"algorithm.adv_estimator": "grpo", f"{C}.rollout_is": "token", f"{C}.rollout_is_threshold": 2.5}
    ),
    "verl/conf/main.yaml": Expected(
        {
            "algorithm.adv_estimator": "grpo",
            f"{C}.rollout_is": "sequence",
            f"{C}.rollout_is_threshold": 2.0,
            f"{A}.clip_ratio_low": 0.1,
            f"{A}.clip_ratio_high": 0.2,
        }
    ),
    "verl/conf/algorithm/strict.yaml": Expected({f"{C}.rollout_is": "sequence", f"{C}.rollout_is_threshold": 2.0}),
    "verl/conf/actor/dp_actor.yaml": Expected({f"{A}.clip_ratio_low": 0.1, f"{A}.clip_ratio_high": 0.2}),
    "verl/modes.sh": Expected(
        {
            "algorithm.adv_estimator": "grpo",
            f"{C}.rollout_is": "token",
            f"{C}.rollout_is_threshold": 2.0,
            f"{A}.clip_ratio_high": 0.28,
        }
    ),
    "verl/launch_array.sh": Expected(
        {
            "algorithm.adv_estimator": "grpo",
            f"{A}.policy_loss.loss_mode": "cispo",
            f"{A}.clip_ratio_low": 10,
            f"{A}.clip_ratio_high": 0.2,
        }
    ),
    "verl/strings.sh": Expected(
        {
            "algorithm.adv_estimator": "grpo",
            f"{C}.bypass_mode": True,
            f"{A}.policy_loss.loss_mode": "dppo_tv",
            f"{A}.clip_ratio_low": 0.15,
            f"{A}.clip_ratio_high": 0.15,
            f"{A}.clip_ratio_c": 10000.0,
        },
        said=("the rollout's own",),
    ),
    "verl/two_bounds.sh": Expected(
        {
            f"{C}.rollout_is": "token",
            f"{C}.rollout_rs": "token_k1,seq_max_k2",
            f"{C}.rollout_rs_threshold": "0.5_2.0,2.5",
        }
    ),
    "verl/fully_async.sh": Expected(
        {
            "algorithm.adv_estimator": "grpo",
            f"{C}.bypass_mode": True,
            f"{A}.clip_ratio_low": 0.2,
            f"{A}.clip_ratio_high": 0.28,
        }
    ),
    "verl/estimator_of_a_fork.sh": Expected(
        {f"{A}.loss_agg_mode": "token-mean"}, ("advantage",), ("'codapo' is not supported",)
    ),
    "verl/before_agg_mode.sh": Expected(
        {"algorithm.adv_estimator": "grpo"}, ("loss",), ("loss_agg_mode took its place",)
    ),
    "verl/orphan.yaml": Expected(
        {f"{A}.clip_ratio_low": 0.2, f"{A}.clip_ratio_high": 0.3},
        ("correction",),
        ("the correction depends on", *BUILDS),
    ),
    "slime/bootstrap.sh": Expected(
        {"advantage_estimator": "grpo", "eps_clip": 0.2, "eps_clip_high": 0.28, "use_tis": True}
    ),
    "slime/other_loss.sh": Expected(
        {"advantage_estimator": "grpo"}, ("loss",), ("--loss-type fipo_loss is not supported", "fipo_clip_ratio")
    ),
    "slime/trust_region.sh": Expected(
        {
            "use_tis": True,
            "custom_tis_function_path": "slime.backends.megatron_utils.loss.binary_kl_trust_region_function",
            "tis_binary_kl_threshold": 2e-3,
        },
        ("advantage",),
        ("flash_reinforce is not supported",),
    ),
    "slime/centred_scores.sh": Expected(
        {
            "advantage_estimator": "grpo",
            "grpo_std_normalization": False,
            "pg_loss_type": "reinforce",
            "calculate_per_token_loss": True,
            "use_score_centering": True,
            "use_tis": True,
        },
        said=("less its mean over the score_centering_top_k likeliest ids",),
    ),
    "slime/teachers.sh": Expected(
        {"advantage_estimator": "grpo"}, ("advantage",), ("--use-mopd is not supported", "mopd_eps_low, mopd_eps_high")
    ),
    "slime/elected_head.sh": Expected(
        {"advantage_estimator": "grpo", "kl_loss_coef": 0.01, "eps_clip": 0.1},
        said=("no effect without --use-kl-loss",),
    ),
    "slime/mis.yaml": Expected(
        {"use_tis": True, "tis_level": "sequence", "tis_upper_bound": 3.0, "tis_batch_normalize": False}
    ),
    "slime/recipe_beside.sh": Expected(
        {
            "advantage_estimator": "grpo",
            "use_tis": True,
            "custom_tis_function_path": "examples.train_infer_mismatch_helper.mis.compute_mis_weights_with_cp",
            "tis_level": "sequence",
            "tis_upper_bound": 3.0,
            "tis_batch_normalize": False,
        },
        said=("mis.yaml are read too",),
    ),
    "slime/recipe_elsewhere.sh": Expected(
        {"advantage_estimator": "grpo"},
        ("correction",),
        ("$SLIME_DIR/examples/elsewhere/bounds.yaml", "stand in the file of --custom-config-path"),
    ),
    "slime/plain.sh": Expected(
        {
            "advantage_estimator": "grpo",
            "use_kl_loss": True,
            "kl_loss_coef": 0.0,
            "kl_loss_type": "low_var_kl",
            "entropy_coef": 0.0,
            "eps_clip": 0.2,
            "eps_clip_high": 0.28,
            "use_tis": True,
            "n_samples_per_prompt": 8,
        },
        said=("${MODEL_ARGS[@]}",),
    ),
    "slime/distilled.sh": Expected(
        {"advantage_estimator": "on_policy_distillation", "use_tis": True, "tis_clip": 3, "eps_clip": 0.2}
    ),
    "slime/conditional_arrays.sh": Expected(
        {"advantage_estimator": "grpo", "eps_clip": 0.2}, ("correction",), ("use_tis depends on ${ARGS[@]} (line 2)",)
    ),
    "slime/models_only.sh": Expected({"use_rollout_logprobs": True}),
    "slime/launcher.py": Expected(
        {
            "advantage_estimator": "grpo",
            "eps_clip": 0.2,
            "eps_clip_high": 0.28,
            "use_tis": True,
            "n_samples_per_prompt": 16,
        }
    ),
    "slime/gspo_env.sh": Expected({"advantage_estimator": "gspo", "eps_clip": 4e-4}),
    "skyrl/task.yaml": Expected(
        {
            "trainer.algorithm.advantage_estimator": "grpo",
            "trainer.algorithm.eps_clip_low": 0.3,
            "trainer.algorithm.use_kl_loss": False,
        }
    ),
    "skyrl/distilled.sh": Expected(
        {"trainer.algorithm.use_kl_loss": False},
        ("advantage",),
        ("distils a teacher", "Not one of SkyRL's own programs", "trainer.algorithm.gold_beta"),
    ),
    "skyrl/sections.yaml": Expected(
        {
            "trainer.algorithm.advantage_estimator": "grpo",
            "trainer.algorithm.use_kl_loss": True,
            "trainer.algorithm.kl_loss_coef": 0.01,
            "trainer.algorithm.eps_clip_low": 0.2,
            "trainer.algorithm.eps_clip_high": 0.2,
        }
    ),
    "skyrl/slurm.sh": Expected(
        {
            "trainer.algorithm.policy_loss_type": "sapo",
            "trainer.algorithm.loss_reduction": "sequence_mean",
            "trainer.algorithm.use_kl_loss": False,
            "trainer.algorithm.sapo.tau_neg": 1.1,
        }
    ),
    "skyrl/dapo.sh": Expected(
        {
            "trainer.algorithm.use_tis": True,
            "trainer.algorithm.tis_imp_ratio_cap": 2.0,
            "trainer.algorithm.advantage_estimator": "grpo",
            "trainer.algorithm.policy_loss_type": "dual_clip",
            "trainer.algorithm.clip_ratio_c": 10.0,
            "trainer.algorithm.loss_reduction": "token_mean",
            "trainer.algorithm.eps_clip_low": 0.2,
            "trainer.algorithm.eps_clip_high": 0.28,
            "trainer.algorithm.use_kl_loss": False,
        }
    ),
    "skyrl/new_correction.sh": Expected(
        {
            "tis_ratio_type": "token",
            "token_tis_ratio_clip_high": 3.0,
            "sequence_mask_metric": "geometric",
            "advantage_estimator": "grpo",
        }
    ),
    "skyrl/entry.py": Expected(
        {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 2.5, "advantage_estimator": "grpo"}
    ),
    "skyrl/base.yaml": Expected(
        {"trainer.algorithm.advantage_estimator": "rloo", "trainer.algorithm.use_tis": False}, said=("ppo_base_config",)
    ),
    "openrlhf/comments_at_the_end.sh": Expected(
        {"init_kl_coef": 0.02, "advantage_estimator": "rloo", "n_samples_per_prompt": 4}
    ),
    "openrlhf/icepop_flags.sh": Expected(
        {
            "is_correction_level": "token",
            "is_correction_mode": "mask",
            "is_correction_threshold": [0.5, 5.0],
            "algo.kl.init_coef": 1e-4,
            "algo.advantage.gamma": 1.0,
            "algo.kl.use_loss": True,
            "algo.kl.estimator": "k2",
            "algo.advantage.estimator": "reinforce_baseline",
            "actor.eps_clip_low_high": [0.2, 0.27],
            "rollout.n_samples_per_prompt": 16,
            "rollout.max_new_tokens": 8192,
        },
        said=("renamed in 0.11.2",),
    ),
    "openrlhf/slurm.sh": Expected(
        {
            "algo.advantage.estimator": "group_norm",
            "rollout.n_samples_per_prompt": 8,
            "actor.eps_clip": 0.3,
            "algo.kl.init_coef": 0.01,
        }
    ),
    "openrlhf/middle_version.sh": Expected(
        {
            "is_correction_level": "seq",
            "is_correction_mode": "mask",
            "is_correction_threshold": [0.9, 1.1],
            "algo.advantage.estimator": "rloo",
            "rollout.n_samples_per_prompt": 4,
        },
        said=("0.10.4 to 0.11.1",),
    ),
    "openrlhf/today.sh": Expected(
        {
            "is_correction_level": "token",
            "is_correction_mode": "clip",
            "is_correction_threshold": [0.5, 5.0],
            "actor.eps_clip_low_high": [0.2, 0.28],
        }
    ),
    "openrlhf/first_version.sh": Expected(
        {
            "is_correction_level": "token",
            "is_correction_mode": "clip",
            "is_correction_threshold": [2],
            "actor.eps_clip": 0.2,
        }
    ),
    "open-instruct/mason.sh": Expected(
        {"use_rho_correction": True, "rho_clamp_upper_bound": 2.0, "clip_higher": 0.272, "beta": 0.0}
    ),
    "open-instruct/removed.sh": Expected({"truncated_importance_sampling_ratio_cap": 2.0, "beta": 0.01}),
    "open-instruct/icepop.sh": Expected(
        {"clip_higher": 0.28, "beta": 0.0}, ("correction",), ("use_icepop is not supported",)
    ),
    "areal/grpo.yaml": Expected(
        {
            "actor.use_decoupled_loss": True,
            "actor.recompute_logprob": True,
            "actor.behave_imp_weight_cap": 5.0,
            "actor.eps_clip": 0.4,
            "actor.max_new_tokens": 1024,
        }
    ),
    "areal/run.sh": Expected(
        {
            "actor.eps_clip": 0.3,
            "actor.use_decoupled_loss": True,
            "actor.rejection_sampling": {"level": "token", "action": "mask", "upper": 4},
        },
        said=BUILDS,
    ),
    "trl/script_with_docstring.py": Expected(
        {"use_vllm": True, "epsilon_high": 0.28, "loss_type": "dapo"}, said=("the script's own text",)
    ),
    "trl/config_call.py": Expected(
        {
            "use_vllm": True,
            "vllm_importance_sampling_mode": "token_truncate",
            "vllm_importance_sampling_clip_max": 2.0,
            "loss_type": "grpo",
            "beta": 0.04,
            "epsilon": 0.2,
            "epsilon_high": 0.28,
        }
    ),
    "trl/argparse_defaults.py": Expected(
        {
            "beta": 0.01,
            "vllm_importance_sampling_correction": False,
            "loss_type": "dr_grpo",
            "max_completion_length": 256,
        }
    ),
    "trl/dataclass_fields.py": Expected({"beta": 0.02, "epsilon": 0.1, "loss_type": "bnpo"}),
    "trl/unknown_value.py": Expected(
        {"use_vllm": True, "vllm_importance_sampling_mode": "token_mask"}, ("loss",), ("variable 'BETA' (line 5)",)
    ),
    "trl/launch.sh": Expected(
        {
            "use_vllm": True,
            "vllm_importance_sampling_mode": "token_mask",
            "vllm_importance_sampling_clip_max": 2.0,
        }
    ),
    "trl/async_class.py": Expected({"max_staleness": 4, "epsilon": 0.3}, said=("only thing that looks at the ratio",)),
    "trl/defaults.py": Expected({"num_generations": 8}, said=("TRL's defaults apply",)),
    "ms-swift/teacher.sh": Expected(
        {
            "rollout_importance_sampling_mode": "token_truncate",
            "beta": 0.0,
            "teacher_model": "t",
            "advantage_estimator": "grpo",
        }
    ),
    "ms-swift/mixed.sh": Expected({"advantage_estimator": "rloo"}, ("loss",), ("a supervised loss is mixed in",)),
    "roll/agentic.yaml": Expected(
        {
            "pg_clip": 0.1,
            "entropy_loss_coef": 0,
            "train_infer_correction": {"is_weight": {"enabled": True, "upper_bound": 2.0}},
        },
        ("advantage",),
        ("step_reinforce is not supported",),
    ),
    "prime-rl/today.toml": Expected({"trainer.loss.type": "icepop", "trainer.loss.ratio_high": 4.0}),
    "prime-rl/centred.toml": Expected(
        {
            "trainer.loss.type": "ipo",
            "trainer.loss.eps": 0.2,
            "trainer.loss.score_centering": True,
            "orchestrator.algo.type": "grpo",
        },
        said=("centered over the sampling mask",),
    ),
    "prime-rl/clipped.toml": Expected(
        {"trainer.loss.type": "ppo", "trainer.loss.ratio_high": 1.28, "trainer.loss.adv_tau": 0.5},
        said=("clips the ratio to the sampler",),
    ),
    "prime-rl/shaped.toml": Expected(
        {"trainer.loss.dppo_mask_low": 0.1}, ("advantage",), ("length_penalty is not supported",)
    ),
    "prime-rl/loss_of_a_fork.toml": Expected(
        {"trainer.loss.type": "trpl", "orchestrator.algo.type": "max_rl"}, ("correction", "loss"), ("got 'trpl'",)
    ),
    "nemo-rl/handed_on.sh": Expected(
        {
            "grpo.num_prompts_per_step": 64,
            "loss_fn.ratio_clip_max": 0.28,
            "loss_fn.use_importance_sampling_correction": True,
        }
    ),
    "nemo-rl/for_one_job.sh": Expected(
        {"loss_fn.use_importance_sampling_correction": True, "loss_fn.ratio_clip_min": 0.1}
    ),
    "nemo-rl/nothing_of_its_own.yaml": Expected({"grpo.max_num_steps": 500}, ("correction",), BUILDS),
    "areal/beside.sh": Expected(
        {
            "actor.use_decoupled_loss": True,
            "actor.recompute_logprob": True,
            "actor.behave_imp_weight_cap": 5.0,
            "actor.eps_clip": 0.25,
            "actor.max_new_tokens": 1024,
        },
        said=("grpo.yaml are read too",),
    ),
    "open-instruct/beaker.sh": Expected(
        {
            "truncated_importance_sampling_ratio_cap": 2.0,
            "beta": 0.0,
            "advantage_normalization_type": "centered",
        }
    ),
    "trl/rloo_cli.sh": Expected(
        {"epsilon": 0.2, "beta": 0.0, "use_vllm": False, "normalize_advantages": False},
        ("loss",),
        ("product of the ratios",),
    ),
    "prime-rl/rl.toml": Expected({"trainer.loss": {"type": "default", "dppo_mask_high": 0.3, "kl_tau": 0.002}}),
    "prime-rl/base.toml": Expected({"trainer.loss": {"type": "default", "dppo_mask_high": 0.3, "kl_tau": 0.5}}),
    "prime-rl/run.sh": Expected(
        {"trainer.loss": {"type": "default", "dppo_mask_high": 0.4, "kl_tau": 0.002}}, said=("rl.toml are read too",)
    ),
    "prime-rl/plain.toml": Expected({"trainer": {"optim": {}}, "orchestrator": {"group_size": 16}}),
    "nemo-rl/child.yaml": Expected(
        {
            "loss_fn": {
                "reference_policy_kl_penalty": 0.01,
                "ratio_clip_min": 0.2,
                "ratio_clip_max": 0.28,
                "use_importance_sampling_correction": True,
                "truncated_importance_sampling_type": "tis",
                "truncated_importance_sampling_ratio": 2.0,
            }
        }
    ),
    "nemo-rl/list_of_parents.yaml": Expected(
        {
            "loss_fn": {
                "reference_policy_kl_penalty": 0.01,
                "ratio_clip_min": 0.2,
                "ratio_clip_max": 0.2,
                "use_importance_sampling_correction": True,
                "truncated_importance_sampling_type": "tis",
                "truncated_importance_sampling_ratio": 3.0,
            }
        }
    ),
    "nemo-rl/orphan.yaml": Expected(
        {"loss_fn": {"ratio_clip_max": 0.28}}, ("correction",), ("../../grpo_math_1B.yaml", *BUILDS)
    ),
    "nemo-rl/run.sh": Expected(
        {"loss_fn": {"ratio_clip_min": 0.2, "use_importance_sampling_correction": True}}, said=BUILDS
    ),
    "roll/rlvr.yaml": Expected(
        {"adv_estimator": "reinforce", "reward_clip": 10, "advantage_clip": 2.0, "whiten_advantages": True}
    ),
    "roll/corrected.yaml": Expected(
        {"pg_clip": 0.2, "train_infer_correction": {"is_weight": {"enabled": True, "upper_bound": 1.2}}},
        ("advantage",),
        ("adv_estimator gigpo is not supported",),
    ),
    "ms-swift/grpo.sh": Expected(
        {
            "rollout_importance_sampling_mode": "token_truncate",
            "rollout_importance_sampling_threshold": 2.0,
            "epsilon": 0.2,
            "epsilon_high": 0.28,
            "loss_type": "grpo",
        }
    ),
    "ms-swift/megatron.sh": Expected(
        {"beta": 0.001, "loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4}
    ),
}
PARTS = (
    "correction",
    "loss",
    "reduction",
    "kl",
    "entropy",
    "advantage",
    "shaping",
    "reward_kl",
    "advantage_norm",
    "advantage_clip",
)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_file_reads_as_its_keys_written_down_plainly(name: str) -> None:
    expected, framework = EXPECTED[name], name.partition("/")[0]
    found, plain = read(framework, FILES / name), read(framework, expected.keys)
    for part in PARTS:
        assert getattr(found, part) == (None if part in expected.refused else getattr(plain, part)), part
    assert tuple(each.part for each in found.refused) == expected.refused
    told = "\n".join(map(str, (*found.refused, *found.findings)))
    for words in expected.said:
        assert words in told


@pytest.mark.parametrize("name", EXPECTED)
def test_the_framework_of_a_file_is_recognised(name: str) -> None:
    assert recognise(FILES / name).framework == name.partition("/")[0]


def test_every_file_stands_in_the_table() -> None:
    found = {str(each.relative_to(FILES)) for each in FILES.rglob("*.*") if "__pycache__" not in str(each)}
    assert found - {"nemo-rl/grpo_base.yaml"} == set(EXPECTED)


def test_a_parent_that_switches_the_correction_on_is_read() -> None:
    weight = read("nemo-rl", FILES / "nemo-rl" / "child.yaml").correction
    assert weight is not None
    assert weight.weight is not None
    assert weight.weight.upper == 2.0


def test_comments_below_the_last_word_of_a_command_cut_nothing_off() -> None:
    told = [str(each) for each in read("openrlhf", FILES / "openrlhf" / "comments_at_the_end.sh").findings]
    assert not any("passes nothing that follows" in each for each in told)
    cut = [str(each) for each in read("verl", FILES / "verl" / "comment_inside.sh").findings]
    assert any("passes nothing that follows" in each for each in cut)


BROKEN = """
GRPO_ARGS=(--advantage-estimator grpo --eps-clip 0.2 --use-tis)
python3 {start} --hf-checkpoint x{end}
   ${{MODEL_ARGS[@]}} \\
   ${{GRPO_ARGS[@]}}
"""


@pytest.mark.parametrize(
    ("start", "end", "cut"), [("train.py", "", ["line 3"]), ("train.py", " \\", []), ("-m slime.train", "", ["line 3"])]
)
def test_a_backslash_that_is_missing_before_arrays_of_arguments_ends_the_command(
    tmp_path: Path, start: str, end: str, cut: list[str]
) -> None:
    file = tmp_path / "run.sh"
    file.write_text(BROKEN.format(start=start, end=end))
    found = read("slime", file)
    assert [each.key for each in found.findings if "passes nothing that follows" in each.text] == cut
    assert found.correction is not None
    assert found.correction.weight is not None
    assert found.correction.weight.upper == 2.0


@pytest.mark.parametrize("command", ['"${CMD[@]}"', '"${LAUNCHER[@]}" --eps-clip 0.3', "$RUN"])
def test_an_array_that_is_a_command_by_its_name_goes_on_with_none(tmp_path: Path, command: str) -> None:
    file = tmp_path / "run.sh"
    file.write_text(
        f"CMD=(echo done)\npython3 train.py --hf-checkpoint x --advantage-estimator grpo --eps-clip 0.2\n{command}\n"
    )
    assert not any("passes nothing that follows" in each.text for each in read("slime", file).findings)


@pytest.mark.parametrize("flag", ["no_grpo_std_normalization", "disable_grpo_std_normalization"])
def test_a_flag_that_switches_a_setting_off_by_another_name_is_that_setting(flag: str) -> None:
    plain = read("slime", {"advantage_estimator": "grpo", "grpo_std_normalization": False})
    assert read("slime", {"advantage_estimator": "grpo", flag: True}).advantage == plain.advantage
    assert read("slime", {"advantage_estimator": "grpo", flag: False}).advantage != plain.advantage


def test_a_key_that_begins_so_by_itself_keeps_its_meaning() -> None:
    settings = {"algo.advantage.estimator": "reinforce", "algo.advantage.no_std_norm": True}
    assert read("openrlhf", settings).advantage != read("openrlhf", {"algo.advantage.estimator": "reinforce"}).advantage


def test_switches_of_the_first_areal_normalise_advantages_by_group_or_over_the_batch() -> None:
    read_as = {
        by_group: read("areal", {"actor": {"eps_clip": 0.2, "kl_ctl": 0.0, "group_adv_norm": by_group}}).advantage
        for by_group in (False, True)
    }
    for by_group, level in ((False, "batch"), (True, "group")):
        norm = getattr(read_as[by_group], "normalise", None)
        assert norm is not None
        assert (norm.mean, norm.std, norm.unbiased, norm.eps) == (level, level, False, 1e-5)
    today = read("areal", {"actor": {"eps_clip": 0.2, "kl_ctl": 0.0, "reward_scaling": 2.0}}).advantage
    assert getattr(today, "normalise", None) is None


def test_a_command_in_a_scripts_text_is_named_only_where_it_says_something_that_is_read() -> None:
    told = [str(each) for each in read("trl", FILES / "trl" / "served_apart.py").findings]
    assert not any("the script's own text" in each for each in told)
    its_own = [str(each) for each in read("trl", FILES / "trl" / "grpo_by_its_own_text.py").findings]
    assert not any("Not one of TRL's own programs" in each for each in its_own)


def test_a_file_that_shows_nothing_of_its_own_names_the_frameworks_it_may_be_of() -> None:
    assert recognise(FILES / "slime" / "plain.sh").why.endswith("(miles has this key too)")
    assert "miles has this key too" not in recognise(FILES / "miles" / "function_named.sh").why
