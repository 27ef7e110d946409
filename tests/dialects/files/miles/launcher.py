"""Starts a run."""
import miles.utils.external_utils.command_utils as U

MODEL = "Qwen3-4B"


def execute():
    ckpt_args = f"--hf-checkpoint /root/models/{MODEL} --ref-load /root/{MODEL}_torch_dist "
    rollout_args = "--rollout-batch-size 32 --n-samples-per-prompt 8 --rollout-max-response-len 8192 "
    grpo_args = (
        "--advantage-estimator grpo "
        "--eps-clip 0.2 "
        "--eps-clip-high 0.28 "
        "--use-tis "
        "--tis-clip 3.0 "
    )
    train_args = f"{ckpt_args} " f"{rollout_args} " f"{grpo_args} "
    U.execute_train(train_args=train_args, num_gpus_per_node=8, megatron_model_type="qwen3-4B")


if __name__ == "__main__":
    execute()
