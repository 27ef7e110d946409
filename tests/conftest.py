import faulthandler
import os
import signal
import threading

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

torch.set_num_threads(1)
# A shell starts what runs in the background with interrupts ignored, and children inherit that: none of them could be interrupted.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored, in every process that the tests start too
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


WHOLE_RUN = 5000.0
"""Seconds for the whole suite: past them it ends with every stack printed, whatever it hangs in."""


def pytest_configure(config: pytest.Config) -> None:
    """Ends a run that hangs where no limit on a single test reaches, such as a crashed worker that is waited for."""
    if hasattr(config, "workerinput"):  # workers end with the process that started them
        return
    limit = threading.Timer(float(os.environ.get("TRIMTAB_SUITE_SECONDS", WHOLE_RUN)), _give_up)
    limit.daemon = True
    limit.start()


def _give_up() -> None:
    os.write(2, b"\nThe suite needs to end in time and did not. Where it stands:\n")
    faulthandler.dump_traceback(2)
    os._exit(1)
