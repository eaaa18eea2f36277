"""Jobs that share a machine do not share a GPU."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from types import SimpleNamespace

import pytest
import torch

from harness import gpus
from harness.gpus import gpu_count, one_gpu


class Chosen(list):
    def __init__(self):
        super().__init__()
        self.by_thread = {}

    def add(self, number):
        self.by_thread[threading.get_ident()] = number
        self.append(number)


@pytest.fixture
def two(monkeypatch):
    """Two GPUs that nobody else has; the list of those chosen, and each thread's last."""
    ids, chosen = [uuid.uuid4(), uuid.uuid4()], Chosen()
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda k: SimpleNamespace(uuid=ids[k]))
    monkeypatch.setattr(torch.cuda, "set_device", chosen.add)
    monkeypatch.setattr(gpus, "WAIT", 0.01)
    return chosen


def test_jobs_at_once_get_one_each_and_a_third_waits(two):
    """Whichever come first: two are at work on two GPUs before either goes on, and no GPU ever has two jobs."""
    arrivals, both, lock, at_work, seen = count(), threading.Barrier(2, timeout=30), threading.Lock(), {}, []

    def job(name):
        with one_gpu():
            with lock:
                order = next(arrivals)
                at_work[name] = two.by_thread[threading.get_ident()]
                seen.append(sorted(at_work.values()))
            if order < 2:
                both.wait()
            with lock:
                del at_work[name]

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(job, "abc"))
    assert seen[1] == [0, 1]  # the second did not wait
    assert len(seen) == 3 and all(len(gpus) == len(set(gpus)) for gpus in seen)  # the third did


def test_a_gpu_is_let_go_when_its_job_fails(two):
    for _ in range(2):
        with pytest.raises(RuntimeError), one_gpu():
            raise RuntimeError
    assert two == [0, 0]


def test_nothing_happens_without_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with one_gpu():
        assert gpu_count() == 1
