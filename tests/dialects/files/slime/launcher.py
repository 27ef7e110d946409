"""Starts a run."""
import command_utils as U

MODEL = "small"


def execute(debug=False):
    ckpt_args = f"--hf-checkpoint /root/models/{MODEL} "
    rollout_args = (
        "--rollout-batch-size 64 "
        "--n-samples-per-prompt 16 "
        f"--rollout-max-response-len {100 if debug else 32768} "
    )
    grpo_args = (
        "--advantage-estimator grpo "
        # "--use-kl-loss "
        "--eps-clip 0.2 "
        "--eps-clip-high 0.28 "
        "--use-tis "
    )
    train_args = f"{ckpt_args} " f"{rollout_args} " f"{grpo_args} " f"{U.get_default_wandb_args(__file__)} "
    U.execute_train(train_args=train_args, num_gpus=8, megatron_model_type=None)


if __name__ == "__main__":
    execute()
