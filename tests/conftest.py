"""What all tests share: no network, no thread warnings, Ctrl-C that works, time for torch to start, slow files first."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext

os.environ.update(
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    TOKENIZERS_PARALLELISM="false",
    OMP_NUM_THREADS="1",  # several test processes run side by side: threads that wait for each other only slow them
)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as shells leave it to what they start in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

import pytest
from hypothesis import settings

settings.register_profile("nearfar", deadline=None)  # the first call into torch takes as long as it takes
settings.load_profile("nearfar")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with the most slow tests first: ``make test`` gives whole files to its processes, and the short ones at
    the end let all of them finish together. Within a file the order stays."""
    tests = Counter(item.path for item in items)
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: (-slow[item.path], -tests[item.path], str(item.path)))


@pytest.fixture(scope="session")
def children() -> ForkServerContext:
    """Where to start processes that begin with everything imported and nothing computed."""
    from tests import preloaded

    return preloaded.children()


@pytest.fixture(scope="session")
def preloaded_workers() -> Iterator[None]:
    """Trials of studies that are run in this process begin without seconds of imports."""
    from tests import preloaded

    with preloaded.preloaded_workers():
        yield
