import faulthandler
import os
import signal
import threading

import pytest
import torch
from hypothesis import HealthCheck, Phase, settings

from tests.waiting import HEARD

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


SILENCE = 2400.0
"""Seconds in which some test has to end, or a long one to say that it comes on; past them the run does, with every stack printed,
whatever it hangs in. A limit on one test is shorter, and one on the whole run would fail on a machine that is merely busy."""


def pytest_configure(config: pytest.Config) -> None:
    """Ends a run that hangs where no limit on a single test reaches, such as a crashed worker that is waited for."""
    if not hasattr(config, "workerinput"):  # workers end with the process that started them
        threading.Thread(target=_listen, args=[config], daemon=True).start()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A test has come on, here or in a worker."""
    HEARD.set()


def _listen(config: pytest.Config) -> None:
    while HEARD.wait(float(os.environ.get("TRIMTAB_SUITE_SECONDS", SILENCE))):
        HEARD.clear()
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture is not None:  # a test that hangs holds the terminal
        capture.suspend(in_=True)
    os.write(2, b"\nNo test has ended for a long time: the suite hangs. Where it stands:\n")
    faulthandler.dump_traceback(2)
    os._exit(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start processes and wait for them go first, so that the last worker is not left alone with them."""
    items.sort(key=lambda item: "tests/train/" not in item.path.as_posix())
