import torch
from hypothesis import HealthCheck, Phase, settings

torch.set_num_threads(1)
settings.register_profile(
    "house",
    deadline=None,
    max_examples=30,
    derandomize=True,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")
