uv run rl @ configs/rl.toml --trainer.loss.dppo-mask-high 0.4 --orchestrator.batch-size 128
