"""An input pipeline's process on a worker's host, as the worker starts it: ``python -P _process.py CHANNELS PARENT``.

It makes the dataset and, for each request, the rows of a batch that its host's devices need. It imports torch, which
the worker itself never does, and nothing of this package: it may run beside any version of the code around it. Channel
i is file descriptor 3 + i; what is said on one is specified in ``csrc/worker/pipeline.h``. What requests are made of is
known here and in ``_remote.py`` alone:

    given       pickle: sys_path, and ``pickled``, cloudpickle of (dataset_fn, collate_fn), and seed
    info        pickle: length (None for a stream), leaves [(dtype, shape of a row)], tree (numbers for leaves)
    request     JSON: op "rows", or "count" for a stream; epoch; batch; ...
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import pickle
import random
import signal
import socket
import struct
import sys
import traceback
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

_FIRST_DESCRIPTOR = 3
_ALIGNMENT = 64
_INTERNAL = 13
_TEXT_MAX = 16_384
_PR_SET_PDEATHSIG = 1
_MASK = (1 << 64) - 1


def end_with(parent: int) -> None:
    """Has the kernel end this process when ``parent`` ends, which it may have done already."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def mix(*numbers: int) -> int:
    """A 64-bit number of all of ``numbers``, in order: splitmix64. The same on every machine."""
    state = 0
    for number in numbers:
        state = (state + (number & _MASK) + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


class Pipeline:
    """A dataset, and how batches are made of it."""

    def __init__(self, given: dict[str, Any]) -> None:
        import torch
        from torch.utils import _pytree as pytree
        from torch.utils.data import IterableDataset, default_collate

        self._torch = torch
        self._pytree = pytree
        self._seed = int(given["seed"])
        self._make, collate = pickle.loads(given["pickled"])
        self._collate = collate or default_collate
        self._dataset = self._make()
        has_indices = hasattr(self._dataset, "__getitem__") and hasattr(self._dataset, "__len__")
        self._is_stream = not has_indices or isinstance(self._dataset, IterableDataset)
        self._batch_size = int(given["batch_size"])
        self._stream: Any = None
        self._stream_at = (-1, 0)
        self._held: dict[int, list[Any]] = {}
        self.info = self._describe()

    def _describe(self) -> dict[str, Any]:
        if self._is_stream:
            self._begin(0)
            sample = next(self._stream, None)
            self._stream, self._stream_at = None, (-1, 0)
            if sample is None:
                raise ValueError("the dataset is an iterable that gave nothing")
            batch = self._collate([sample])
        elif len(self._dataset) == 0:
            raise ValueError("the dataset has no samples")
        else:
            batch = self._collate([self._sample(0, 0)])
        leaves, tree = self._pytree.tree_flatten(self._plain(batch))
        self._types = [self._type(leaf, number) for number, leaf in enumerate(leaves)]
        return {
            "length": None if self._is_stream else len(self._dataset),
            "leaves": self._types,
            "tree": self._pytree.tree_unflatten(list(range(len(leaves))), tree),
        }

    def _plain(self, batch: Any) -> Any:
        """A batch with dicts for mappings of other classes, which the client may not know."""
        return self._pytree.tree_map(lambda leaf: self._plain(dict(leaf)) if isinstance(leaf, Mapping) else leaf, batch)

    def _type(self, leaf: Any, number: int) -> tuple[str, tuple[int, ...]]:
        if not isinstance(leaf, self._torch.Tensor) or leaf.dim() == 0 or leaf.shape[0] != 1:
            got = f"a tensor {tuple(leaf.shape)}" if isinstance(leaf, self._torch.Tensor) else type(leaf).__name__
            raise TypeError(
                "every value of a remote batch must be a tensor whose first dimension is the samples; of one sample, "
                f"value {number} of the batch is {got}; make tensors of it in the dataset or in collate_fn, or leave "
                "it out"
            )
        return str(leaf.dtype).removeprefix("torch."), tuple(leaf.shape[1:])

    def _reseed(self, *of: int) -> None:
        seed = mix(self._seed, *of)
        self._torch.default_generator.manual_seed(seed)
        random.seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed & 0xFFFFFFFF)

    def _sample(self, epoch: int, index: int) -> Any:
        self._reseed(epoch, index)
        return self._dataset[index]

    def _begin(self, epoch: int) -> None:
        self._reseed(epoch)
        self._stream = iter(self._make())  # anew: a generator can be read once
        self._stream_at = (epoch, 0)
        self._held.clear()

    def count(self, request: dict[str, Any]) -> str:
        """Reads a batch of a stream and keeps its samples; how many there are."""
        epoch, batch = request["epoch"], request["batch"]
        if self._stream_at[0] != epoch or self._stream_at[1] > batch:
            self._begin(epoch)
        samples: list[Any] = []
        while self._stream_at[1] <= batch:
            samples = []
            for sample in self._stream:
                samples.append(sample)
                if len(samples) == self._batch_size:
                    break
            self._stream_at = (epoch, self._stream_at[1] + 1)
            if len(samples) < self._batch_size:
                break
        complete = self._stream_at[1] > batch
        self._held[batch] = samples if complete else []
        return json.dumps({"rows": len(self._held[batch])})

    def rows(self, request: dict[str, Any]) -> list[Any]:
        """The tensors that ``request["takes"]`` names: boxes of the leaves of the whole batch."""
        epoch, rows = request["epoch"], request["rows"]
        if self._is_stream:
            held = self._held.pop(request["batch"])
            samples = [held[row] for row in rows]
        else:
            samples = [self._sample(epoch, index) for index in request["indices"]]
        leaves = self._pytree.tree_leaves(self._plain(self._collate(samples)))
        taken = []
        for number, start, size in request["takes"]:
            leaf = leaves[number]
            dtype, row_shape = self._types[number]
            if str(leaf.dtype) != f"torch.{dtype}" or tuple(leaf.shape) != (len(rows), *row_shape):
                raise ValueError(
                    f"value {number} of the batch is {leaf.dtype} {tuple(leaf.shape)}, but after the dataset's first "
                    f"sample it should be torch.{dtype} {(len(rows), *row_shape)}; samples of a remote pipeline must "
                    "have one shape: pad or crop them in the dataset, to a size that does not depend on other samples"
                )
            first = bisect_left(rows, start[0])
            box = leaf[first : first + size[0]]
            for dimension in range(1, len(start)):
                box = box.narrow(dimension, start[dimension], size[dimension])
            taken.append(box)
        return taken


def serve(channel: socket.socket, pipeline: Pipeline) -> None:
    """Answers requests until the worker closes the channel."""
    while True:
        request = json.loads(_receive(channel).partition(b"\n")[2])
        try:
            if request["op"] == "count":
                _answer(channel, 0, pipeline.count(request).encode())
            else:
                _answer(channel, 0, b"", pipeline.rows(request))
        except Exception as error:
            _answer(channel, _INTERNAL, _explain(error))


def _explain(error: BaseException) -> bytes:
    """The error and its traceback, also of one that cannot be printed; of long ones the ends."""
    summary = "".join(traceback.format_exception_only(error)).strip()
    lines = "".join(traceback.format_exception(error)).rstrip()
    text = f"{_ends(summary)}\nin the input pipeline, with the traceback\n{_ends(lines)}"
    return text.encode(errors="backslashreplace")


def _ends(text: str) -> str:
    left_out = len(text) - _TEXT_MAX
    if left_out <= 0:
        return text
    return f"{text[: _TEXT_MAX // 2]} ... ({left_out} characters are left out) ... {text[-_TEXT_MAX // 2 :]}"


def _receive(channel: socket.socket) -> bytes:
    (size,) = struct.unpack("<I", _exactly(channel, 4))
    return _exactly(channel, size)


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = channel.recv(size - len(data))
        if not piece:
            os._exit(0)  # the worker has closed the pipeline
        data += piece
    return bytes(data)


def _answer(channel: socket.socket, code: int, text: bytes, tensors: list[Any] | None = None) -> None:
    import torch

    tensors = tensors or []
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    offsets = []
    total = 0
    for size in sizes:
        offsets.append(total)
        total += -(-size // _ALIGNMENT) * _ALIGNMENT
    message = struct.pack(f"<4I{len(text)}s{len(sizes)}Q", code, len(text), len(sizes), 0, text, *sizes)
    if total == 0:
        channel.sendall(message)
        return
    descriptor = os.memfd_create("ptpathways-input", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, total)
        memory = mmap.mmap(descriptor, total)
        for tensor, size, offset in zip(tensors, sizes, offsets, strict=True):
            if size:
                count = tensor.numel()
                room = torch.frombuffer(memory, dtype=tensor.dtype, count=count, offset=offset)
                room.view(tensor.shape).copy_(tensor)
        sent = socket.send_fds(channel, [message], [descriptor])
        channel.sendall(message[sent:])
    finally:
        os.close(descriptor)


def main(channels: int, parent: int) -> None:
    """Builds the pipeline on channel 0, then serves every channel in a process of its own."""
    end_with(parent)
    sockets = [socket.socket(fileno=_FIRST_DESCRIPTOR + i) for i in range(channels)]
    try:
        given = pickle.loads(_receive(sockets[0]))
        for path in given["sys_path"]:
            if path not in sys.path:
                sys.path.append(path)
        import torch

        torch.set_num_threads(1)  # as the workers of a DataLoader: there are as many processes as are wanted
        pipeline = Pipeline(given)
        answer = _cloudpickle(pipeline.info)
    except BaseException as error:
        _answer(sockets[0], _INTERNAL, _explain(error))
        raise SystemExit(1) from None
    mine = sockets[0]
    main_process = os.getpid()
    for number in range(1, channels):
        if os.fork() == 0:
            end_with(main_process)
            mine = sockets[number]
            break
    for other in sockets:
        if other is not mine:
            other.close()
    if mine is sockets[0]:
        _answer(mine, 0, answer)
    serve(mine, pipeline)


def _cloudpickle(value: Any) -> bytes:
    import cloudpickle

    data: bytes = cloudpickle.dumps(value)
    return data


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
