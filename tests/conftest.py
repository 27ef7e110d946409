import os
import signal

import torch
from hypothesis import HealthCheck, Phase, settings

torch.set_num_threads(1)
# A shell starts what runs in the background with interrupts ignored, and children inherit that: none of them could be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile(
    "house",
    deadline=None,
    max_examples=30,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow],
)
# A wider search than every commit can afford: HYPOTHESIS_PROFILE=search pytest tests/laws
settings.register_profile("search", settings.get_profile("house"), max_examples=400, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "house"))
