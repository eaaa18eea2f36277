"""Cells that describe the run: the peak of memory."""

import subprocess
import sys

from harness.report.cells import peak_resident_bytes


def test_peak_is_of_this_process_alone():
    """Not of the one that started it, which Linux's ru_maxrss begins with."""
    held = b"x" * 600_000_000
    code = "from harness.report.cells import peak_resident_bytes; print(peak_resident_bytes())"
    own = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    here = peak_resident_bytes()
    assert len(held) < here
    assert 50e6 < own < here - 100e6
