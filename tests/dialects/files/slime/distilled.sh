CUDA_VISIBLE_DEVICES=7 python3 -m sglang.launch_server --model-path /root/teacher --port 13141 --tp 1 &
GRPO_ARGS=( --advantage-estimator on_policy_distillation --use-tis --tis-clip 3 --eps-clip 0.2 )
ray job submit -- python3 train.py --hf-checkpoint x --rollout-max-response-len 8192 ${GRPO_ARGS[*]}
