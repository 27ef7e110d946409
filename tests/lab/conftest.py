import os

import pytest


@pytest.fixture(scope="session", autouse=True)
def _warm_starts(tmp_path_factory: pytest.TempPathFactory):
    """A cache of the session's own; the fork server keeps the environment it was started with."""
    before = os.environ.get("TRIMTAB_CACHE")
    os.environ["TRIMTAB_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["TRIMTAB_CACHE"]
    else:
        os.environ["TRIMTAB_CACHE"] = before
