"""Laws hand every policy to every call, also those that the call at hand does not read: that nothing comes of them is what they test."""

from __future__ import annotations

from pathlib import Path

import pytest

UNREAD = "ignore:policy_loss got behavior log-probs and no correction"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Only the laws of this folder are spared the warning."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings(UNREAD))
