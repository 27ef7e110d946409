COMMAND="uv run examples/run_grpo.py loss_fn.use_importance_sampling_correction=True loss_fn.ratio_clip_min=0.1" \
CONTAINER=image MOUNTS="$PWD:$PWD" \
sbatch --nodes=1 --account=me ray.sub
