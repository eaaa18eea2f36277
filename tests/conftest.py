"""One thread for tiny models: on them, more threads only wait for each other."""

import os

import pytest
import torch

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes that tests start


@pytest.fixture(autouse=True)
def threads(request):
    torch.set_num_threads(2 if request.node.get_closest_marker("slow") else 1)
