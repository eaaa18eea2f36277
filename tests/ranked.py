"""What torchrun starts in a test: two ranks score different slots, and one of them fails if asked to."""

import sys

import numpy as np

from harness.ranks import agreed, dealt, gathered, rank, together
from harness.stream import Scores


def score():
    if sys.argv[1:] == ["fail"] and rank() == 1:
        raise ValueError("no memory here")
    scores = Scores.empty(1, 5)
    for slot in dealt(range(5)):
        scores.logp_AS[0, slot], scores.kl_AS[0, slot] = -slot, rank()
        scores.greedy_AS[0, slot] = True
    return scores


with together():
    assert agreed(rank() == 0) is True  # the first decides
    try:
        found = gathered(score)
    except (RuntimeError, ValueError) as error:
        found = error
    if rank() == 0:
        values = [found.logp_AS[0], found.kl_AS[0], found.greedy_AS[0]] if isinstance(found, Scores) else str(found)
        print("first:", values if isinstance(values, str) else np.array(values).tolist())
    print("second hears nothing" if rank() else "")
