#!/bin/bash
TRAIN=(srun --nodes=1)
"${TRAIN[@]}" accelerate launch --config_file fsdp.yaml --num_processes 2 \
    "$FOLDER/grpo_with_tools.py" --model small --beta 0.02 $MORE_ARGS
