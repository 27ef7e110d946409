#!/bin/bash
python3 -m areal.launcher.local recipes/train.py \
    --config recipes/config.yaml \
    trial_name=one \
    actor.eps_clip=0.3
