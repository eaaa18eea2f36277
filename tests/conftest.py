"""One thread for tiny models (on them, more threads only wait for each other) and for workers side by side.

Caches of scores start empty.
"""

import os
from pathlib import Path

import pytest
import torch

from harness.model.cache import cache_folder

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that tests start
MODELS = [cache_folder() / name for name in ("models", "digests")]  # made once for all tests, and for the user


def pytest_collection_modifyitems(items):
    """Slow tests first: with several workers, a long one that begins last is waited for by all others."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(autouse=True)
def threads(request):
    alone = "PYTEST_XDIST_WORKER" not in os.environ
    torch.set_num_threads(2 if alone and request.node.get_closest_marker("slow") else 1)


@pytest.fixture(autouse=True, scope="session")
def session_cache(tmp_path_factory):
    """For fixtures of a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HARNESS_CACHE", str(new_cache(tmp_path_factory)))
        yield


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """No test takes scores or statistics that another one left, perhaps on purpose wrong."""
    monkeypatch.setenv("HARNESS_CACHE", str(new_cache(tmp_path_factory)))


def new_cache(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    for shared in MODELS:
        shared.mkdir(parents=True, exist_ok=True)
        (folder / shared.name).symlink_to(shared)
    return folder
