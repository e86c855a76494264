"""How fast a loaded model runs, and how near that is to what the memory allows.

In: a loaded model, or its path. Out: seconds, rates, bytes and bandwidth as plain data, which
`glassgear bench` prints and `benchmarks/` compares with other programs. `timing.py` times steps,
`start.py` a fresh process, `machine.py` the memory; `report.py` puts it all together.
"""

from glassgear.measure.machine import MemoryReader, hardware, peak_memory, versions
from glassgear.measure.report import Bandwidth, Cell, Report, Settings, bench
from glassgear.measure.start import Start, cold_start
from glassgear.measure.timing import decoding, prompt_seconds, random_ids, warm_up, weight_bytes

__all__ = [
    "Bandwidth",
    "Cell",
    "MemoryReader",
    "Report",
    "Settings",
    "Start",
    "bench",
    "cold_start",
    "decoding",
    "hardware",
    "peak_memory",
    "prompt_seconds",
    "random_ids",
    "versions",
    "warm_up",
    "weight_bytes",
]
