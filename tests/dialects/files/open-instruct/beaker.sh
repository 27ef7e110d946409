IMAGE="${1:?Usage: $0 <image>}"
uv run python mason.py \
       --cluster ai2/jupiter \
       --env GIT_COMMIT="$(git rev-parse --short HEAD)" \
       -- source scripts/login.sh \&\& source configs/ray.sh \&\& python open_instruct/grpo_fast.py \
    --num_samples_per_prompt_rollout 8 \
    --beta 0.0 \
    --tool_configs '{"image": "python:3.12-slim"}' \
    --advantage_normalization_type centered \
    --truncated_importance_sampling_ratio_cap 2.0
