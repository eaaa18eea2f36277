"""Jobs that share a machine do not share a GPU."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from harness import gpus
from harness.gpus import gpu_count, one_gpu


@pytest.fixture
def two(monkeypatch):
    """Two GPUs that nobody else has; the list of those chosen."""
    ids, chosen = [uuid.uuid4(), uuid.uuid4()], []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda k: SimpleNamespace(uuid=ids[k]))
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(gpus, "WAIT", 0.01)
    return chosen


def test_jobs_at_once_get_one_each_and_a_third_waits(two):
    both, at_work, most = threading.Barrier(2), [], []

    def job(n):
        with one_gpu():
            at_work.append(n)
            most.append(len(at_work))
            if n < 2:
                both.wait()  # both are in at the same time
            at_work.remove(n)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(job, range(3)))
    assert sorted(two[:2]) == [0, 1] and two[2] in (0, 1)
    assert max(most) == 2


def test_a_gpu_is_let_go_when_its_job_fails(two):
    for _ in range(2):
        with pytest.raises(RuntimeError), one_gpu():
            raise RuntimeError
    assert two == [0, 0]


def test_nothing_happens_without_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with one_gpu():
        assert gpu_count() == 1
