import psutil
import pytest
import torch

from autoplan.executor.telemetry.memory import PeakMemory
from autoplan.units import MIB


def test_on_a_cpu_the_peak_is_the_largest_resident_set():
    memory = PeakMemory.start(torch.device("cpu"))
    before = memory.peak_bytes()
    resident = psutil.Process().memory_info().rss
    assert before >= resident - 2 * MIB
    held = torch.ones(before // 4 + 16 * MIB)  # of 4 bytes each: more than the peak so far, by 64 MiB
    with_it = memory.peak_bytes()
    assert with_it >= before + 48 * MIB
    del held
    assert memory.peak_bytes() >= with_it - MIB  # the kernel counts pages in batches


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_the_peak_is_the_runtime_and_what_was_allocated():
    device = torch.device("cuda", 0)
    memory = PeakMemory.start(device)
    before = memory.peak_bytes()
    held = torch.ones(64 * MIB, dtype=torch.uint8, device=device)
    assert memory.peak_bytes() - before == held.nbytes
