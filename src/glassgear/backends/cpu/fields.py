"""What the int64 fields of a step and of a frame mean: the contract of program and kernels.

A **step** says what to do, and stays as it is while the program lives. A **frame** says for
which rows, and is filled anew for each batch step. Both are read by address.

Activation blocks, 64 bytes: 32 int8 codes, then a float32 unit (what a code of 1 is worth), then
minus the sum of all codes, of the first 16 and of the last 16: these three as int32, times
`SUM_SCALE`, and once more as float32. Twelve tokens lie together, block by block, so that a tile
reads on and on, with fixed distances:
block b of token t starts at ((t // 12) * blocks + b) * 768 + (t % 12) * 64.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "ACTIVATION_BLOCK",
    "COPIES",
    "GROUP",
    "PRODUCT_SCRATCH",
    "QUERY_ROWS",
    "ROWS",
    "SEGMENT",
    "SPARE_ROWS",
    "SPREAD_BLOCK",
    "SPREAD_BLOCKS",
    "STEP_FIELDS",
    "SUM_SCALE",
    "TILE",
    "Frame",
    "NormKind",
    "Step",
    "Sync",
    "quantized_bytes",
]

ACTIVATION_BLOCK = 64  # bytes
SUM_SCALE = 128  # of the sums in them: the middle of unsigned bytes, with which they are multiplied
TILE = 12  # tokens of the widest tile: buffers have room for so many more rows than are used
GROUP = TILE  # tokens that lie together
ROWS = 512  # most rows of a pass
QUERY_ROWS = 48  # pairs of token and query head that attention handles together
SPARE_ROWS = 8  # rows by which the tiles of attention may write past those
SPREAD_BLOCKS = 16  # blocks of a panel whose codes are spread to bytes at a time: half a first cache
SPREAD_BLOCK = 768  # bytes of the largest of them
PRODUCT_SCRATCH = SPREAD_BLOCKS * SPREAD_BLOCK + (ROWS + TILE) * 64  # bytes: they, and unfinished sums
COPIES = 512  # bytes for a copy of a step and of a frame
SEGMENT = 512  # positions whose values are mixed by themselves, then merged in order
STEP_FIELDS = 32


class Step(IntEnum):
    """Fields of a step. A kernel uses some of them."""

    KERNEL = 0  # address of the function
    BARRIER = 1  # 1: all wait after it; 2: only where rows were shared out, not each done by all
    INPUT = 2  # address
    OUTPUT = 3  # address
    WEIGHTS = 4  # address
    COLUMNS = 5  # inputs of a matrix, width of a norm
    INPUT_STRIDE = 6  # bytes from row to row
    OUTPUT_STRIDE = 7  # bytes from row to row
    PANELS = 8  # panels of 16 rows of this matrix
    UNIT = 9  # panels, or heads, that stay together when work is shared out
    UNIT_FIRST = 10  # number of this step's first unit
    UNITS = 11  # units of all steps that are shared out together
    ADD = 12  # 1: add to the output
    WANTED = 13  # 1: only the rows whose logits are wanted
    CODES = 14  # address of activation blocks to write; 0 for none
    PRIVATE = 15  # bytes from thread to thread of a buffer that each thread may have for itself
    A = 16  # what else a kernel needs; named where it is used
    B = 17
    C = 18
    D = 19
    E = 20
    F = 21
    G = 22
    H = 23
    VALUE_DIM = 24  # of attention: width of a value
    VALUE_ROW = 25  # bytes from token to token of cached values
    WINDOW = 26  # how many positions a token sees, its own the last of them; 0 for all
    BOTH_WAYS = 27  # 1: tokens see those behind them
    CAP = 28  # soft cap of the scores as float32; 0 for none


class NormKind(IntEnum):
    """What a norm takes from a row, and divides by."""

    RMS = 0  # nothing; the root of its mean square
    LAYER = 1  # its mean; its standard deviation
    SCALE = 2  # nothing; its length
    AFFINE = 3  # nothing; 1


class Frame(IntEnum):
    """Fields of a frame."""

    ROWS = 0  # rows of this pass
    WANTED = 1  # how many rows' logits are wanted
    WANTED_ROWS = 2  # address: their numbers, int64
    POSITIONS = 3  # address: position of each row, int64
    PAGE_OF_ROW = 4  # address: address of the cache page of each row, int64
    SPANS = 5  # address: for each sequence 4 int64: first row, rows, first page, where its scores go
    SPAN_COUNT = 6
    PAGES = 7  # address: addresses of the cache pages of all sequences, int64
    LOGITS = 8  # address of the output
    LOGITS_STRIDE = 9
    SHARED_OUT = 10  # 1: rows of cheap steps are shared out; 0: each thread does all of them
    COUNTERS = 11  # address: int64 per step, for work that is taken from a queue
    SCRATCH = 12  # address: a piece of memory for each thread
    SCRATCH_BYTES = 13
    ROTATIONS = 14  # address: addresses of the tables of cos and sin, int64
    PARTS = 15  # 0, or address: a piece of memory for each segment, which threads then share out
    PART_BYTES = 16


def quantized_bytes(rows: int, columns: int) -> int:
    """Bytes of the activation blocks of `rows` rows."""
    return -(-rows // GROUP) * (columns // 32) * GROUP * ACTIVATION_BLOCK


class Sync(IntEnum):
    """Words through which a team talks, each on a cache line of its own."""

    ARRIVED = 0  # threads at the meeting point
    GENERATION = 1  # meetings so far
    CALLED_OFF = 2  # not 0: stop waiting and go
    JOB = 3  # number of the newest job
    PROGRAM = 4  # of that job: address of its steps
    COUNT = 5  # steps
    FRAME = 6  # address
    THREADS = 7  # how many take part in the next job
    LONG_WAITS = 8  # how often a thread waited so long that it gave way
    EXPECT = 9  # 1: work is about to come, don't park
    PARKED = 10  # first of a word per thread: 1 if it sleeps and must be woken
