import sys

import chz

from tinker_cookbook.rl import train


def blueprint() -> chz.Blueprint[train.Config]:
    bounds = {"clip_low_threshold": 0.0, "clip_high_threshold": 5.0}
    return chz.Blueprint(train.Config).apply({"max_tokens": 512, "loss_fn": "cispo", "loss_fn_config": bounds})


if __name__ == "__main__":
    train.main(blueprint().make_from_argv(sys.argv[1:]))
