"""The pure parts of checkpoints: formats, who writes what, who reads what, state as JSON, directories."""

from __future__ import annotations

import itertools
import json
import os
import random
import warnings
from collections import Counter, OrderedDict, UserDict, defaultdict
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

# ruff: noqa: E402
from torch.utils.data import DataLoader

from ptpathways import frontend, native
from ptpathways.checkpoint import _directory, _matching, _plan, _safetensors, _save, _sources, _tree
from ptpathways.core import CheckpointError
from ptpathways.data import Feed
from ptpathways.sharding import Box


def test_headers_are_those_of_the_safetensors_package(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    arrays: dict[str, np.ndarray[Any, Any]] = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array(7, dtype=np.int64),
        "é": np.zeros(0, np.uint8),
    }
    header, entries, size = _safetensors.lay_out([("a", "F32", (2, 3)), ("b", "I64", ()), ("é", "U8", (0,))])
    content = bytearray(size)
    content[: len(header)] = header
    for name, entry in entries.items():
        content[entry.offset : entry.offset + entry.bytes] = arrays[name].tobytes()
    (tmp_path / "ours").write_bytes(content)
    assert _safetensors.read_header(tmp_path / "ours") == entries
    for name, array in load_file(tmp_path / "ours").items():
        assert np.array_equal(array, arrays[name]) and array.shape == arrays[name].shape
    save_file(arrays, tmp_path / "theirs")
    theirs = _safetensors.read_header(tmp_path / "theirs")
    assert {name: (entry.dtype, entry.shape) for name, entry in theirs.items()} == {
        name: (entry.dtype, entry.shape) for name, entry in entries.items()
    }


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"1234567",
        b"\xff" * 8 + b"{}",
        b"\x02" + b"\0" * 7 + b"[]",
        b"\x02" + b"\0" * 7 + b"{",
        b"\x03" + b"\0" * 7 + b"[1]",
        (200_000).to_bytes(8, "little") + b"[" * 200_000,
    ],
)
def test_damaged_headers_are_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(CheckpointError, match="x'"):
        _safetensors.read_header(tmp_path / "x")


@pytest.mark.parametrize("change", [{"dtype": "F99"}, {"shape": [3]}, {"data_offsets": [4, 12]}, {"data_offsets": 1}])
def test_headers_that_cannot_be_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | change
    text = json.dumps({"t": entry}).encode()
    (tmp_path / "x").write_bytes(len(text).to_bytes(8, "little") + text + bytes(8))
    with pytest.raises(CheckpointError):
        _safetensors.read_header(tmp_path / "x")


def divide(shape: tuple[int, ...], parts: tuple[int, ...]) -> list[Box]:
    """As XLA does: blocks of equal size, the last ones cut."""
    steps = [-(-size // count) for size, count in zip(shape, parts, strict=True)]
    boxes = []
    for at in itertools.product(*map(range, parts)):
        start = tuple(min(i * step, size) for i, step, size in zip(at, steps, shape, strict=True))
        end = (min((i + 1) * step, size) for i, step, size in zip(at, steps, shape, strict=True))
        boxes.append(Box(start, tuple(last - first for last, first in zip(end, start, strict=True))))
    return boxes


@pytest.mark.parametrize("seed", range(30))
def test_any_division_is_written_once_and_read_in_any_other(seed: int) -> None:
    source = random.Random(seed)
    rank = source.randint(0, 3)
    shape = tuple(source.randint(1, 9) for _ in range(rank))
    whole = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    hosts = source.randint(1, 3)
    boxes = divide(shape, tuple(source.randint(1, 3) for _ in range(rank)))
    copies = source.randint(1, 2)
    parts = [_plan.Part(source.randrange(hosts), box, number) for number, box in enumerate(boxes * copies)]
    before, _plan.SPLIT_BYTES = _plan.SPLIT_BYTES, 8
    try:
        work = _plan.assign({"t": ("F32", parts)})
    finally:
        _plan.SPLIT_BYTES = before
    shards = {part.shard: whole[part.box.slices()] for part in parts}
    files: list[bytes] = []
    pieces = []
    written = np.zeros(shape, int)
    for writings in work.values():
        for plan in _plan.own_files(writings, {"t": ("F32", shape)}):
            content = bytearray(plan.bytes)
            content[: len(plan.header)] = plan.header
            for shard, file_boxes in plan.shards.items():
                for _, offset, dims, at, start, size in file_boxes:
                    assert (dims, at) == (size, (0,) * rank)
                    piece = np.ascontiguousarray(shards[shard][Box(start, size).slices()])
                    content[offset : offset + piece.nbytes] = piece.tobytes()
            for _, offset, box in plan.pieces:
                pieces.append(_plan.Piece(len(files), offset, box))
                written[box.slices()] += 1
            files.append(bytes(content))
    assert (written == 1).all()
    for box in divide(shape, tuple(source.randint(1, 4) for _ in range(rank))):
        got = np.full(box.size, -1, np.float32)
        for number, offset, dims, at, start, size in _plan.gather(box, pieces):
            count = int(np.prod(dims))
            piece = np.frombuffer(files[number], np.float32, count, offset).reshape(dims)
            got[Box(start, size).slices()] = piece[Box(at, size).slices()]
        assert np.array_equal(got, whole[box.slices()])


def test_what_all_hosts_have_is_spread_over_them() -> None:
    def everywhere(shape: tuple[int, ...], first: int) -> tuple[str, list[_plan.Part]]:
        return "F32", [_plan.Part(host, Box((0,) * len(shape), shape), first + host) for host in range(4)]

    tensors = {f"t{n}": everywhere((100, 10), 4 * n) for n in range(40)} | {"big": everywhere((4000, 1000), 1000)}
    work = _plan.assign(tensors)
    loads = [sum(w.box.elements for w in work[host]) for host in range(4)]
    assert sum(loads) == 40 * 1000 + 4_000_000
    assert max(loads) - min(loads) <= 1000


def keep_nothing(*unused: object) -> Any:
    raise AssertionError


@pytest.mark.parametrize(
    "value",
    [
        1, 2.5, float("inf"), "a", None, True, [1, [2]], (1, (2,)), {1: "a", "b": {2.5: None}}, {"$x": 1}, b"ab",
        1 + 2j, {(1, 2): 3}, torch.float32, torch.Size([1, 2]), 10**30, np.float32(2.5), {"a": [({},)]},
        Counter({10: 2, "a": 1}), OrderedDict([("b", 1), ("a", 2)]), OrderedDict({3: [Counter()]}),
    ],
)  # fmt: skip
def test_values_survive_json(value: Any) -> None:
    text = json.dumps(_tree.encode(value, "v", keep_nothing))
    again = _tree.decode(json.loads(text), keep_nothing, allow_pickle=False)
    assert again == value and type(again) is type(value)


def survived(value: Any) -> Any:
    text = json.dumps(_tree.encode(value, "v", keep_nothing))
    return _tree.decode(json.loads(text), keep_nothing, allow_pickle=False)


def test_dictionaries_with_a_default_keep_it() -> None:
    for factory in (list, int, dict, None):
        again = survived({"a": defaultdict(factory, {1: 2})})["a"]
        assert type(again) is defaultdict and again == {1: 2} and again.default_factory is factory
    for value in (defaultdict(lambda: 3, {1: 2}), UserDict({1: 2})):
        assert type(survived(value)) is dict and survived(value) == {1: 2}


def test_a_schedule_of_milestones_goes_on() -> None:
    def schedule() -> Any:
        optimizer = torch.optim.SGD([torch.zeros(1)], 1.0)
        first = torch.optim.lr_scheduler.ConstantLR(optimizer, 0.1)
        then = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3, 3], 0.5)
        return torch.optim.lr_scheduler.SequentialLR(optimizer, [first, then], [2])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no optimizer steps here, and torch's own call of step(0)
        saved, loaded = schedule(), schedule()
        loaded.load_state_dict(survived(saved.state_dict()))
        rates = [[each.step() or each.get_last_lr() for _ in range(6)] for each in (saved, loaded)]
    assert rates[0] == rates[1]


def test_two_tensors_never_have_one_name() -> None:
    tensors = [torch.full((1,), float(number)) for number in range(5)]
    values = {"a.b": tensors[0], "a": {"b": tensors[1], "b~2": tensors[2]}, "1": tensors[3], 1: tensors[4]}
    collected = _save.Collected()
    tree = collected.take("x", values)
    again = _tree.decode(tree, lambda name, path: collected.on_host[name].item(), allow_pickle=False)
    assert again == {"a.b": 0, "a": {"b": 1, "b~2": 2}, "1": 3, 1: 4}


def test_state_in_typed_dictionaries_is_put_into_the_tensors_that_are_there() -> None:
    class Averages:
        def __init__(self) -> None:
            self.of: dict[str, Any] = defaultdict(list)

        def state_dict(self) -> dict[str, Any]:
            return {"of": self.of}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.of = state["of"]

    averages = Averages()
    averages.of["loss"] = torch.ones(2)
    collected = _save.Collected()
    source = _sources.Source("F32", (2,))
    tree = {"averages": collected.take("averages", averages)}
    checkpoint = _sources.Checkpoint(Path("x"), tree, {"averages.of.loss": source})
    fresh = Averages()
    for there in (averages, fresh):
        before = dict(there.of)
        matching = _matching.match(checkpoint, {"averages": there}, strict=True, allow_pickle=False, assume=None)
        assert [tensor for tensor, _ in matching.existing] == list(before.values()) and there.of == before
        for new in matching.new:
            new.made = torch.zeros(2)
        for finish in matching.finish:
            finish.do()
        assert torch.is_tensor(there.of["loss"]) and there.of["accuracy"] == []


def test_a_module_takes_a_state_that_was_saved_as_an_ordered_dictionary() -> None:
    module = torch.nn.Linear(1, 1)
    collected = _save.Collected()
    tree = {"model": collected.take("model", module.state_dict())}  # as a plain value
    assert "$ordered" in tree["model"]
    sources = {f"model.{name}": _sources.Source("F32", tuple(t.shape)) for name, t in module.named_parameters()}
    checkpoint = _sources.Checkpoint(Path("x"), tree, sources)
    matching = _matching.match(checkpoint, {"model": module}, strict=True, allow_pickle=False, assume=None)
    assert not matching.problems and len(matching.existing) == 2


def test_a_loader_says_before_anything_is_changed_that_a_state_is_not_its_own() -> None:
    def feed(**options: Any) -> Any:
        return Feed(DataLoader(list(range(8)), **options), frontend.BatchLayout(None, {}, ()))  # type: ignore[arg-type]

    tree = {"loader": _save.Collected().take("loader", feed(batch_size=2))}
    checkpoint = _sources.Checkpoint(Path("x"), tree, {})
    for options, said in (
        ({"batch_size": 2}, None),
        ({"batch_size": 4}, "loader: the state is of a loader with batch_size=2"),
        ({"batch_size": 2, "generator": torch.Generator()}, "loader: the state is of a loader with 0 random"),
    ):
        loader = {"loader": feed(**options)}
        matching = _matching.match(checkpoint, loader, strict=True, allow_pickle=False, assume=None)
        assert [problem[: len(said or "")] for problem in matching.problems] == ([said] if said else [])
    tree["loader"] = 3
    matching = _matching.match(checkpoint, loader, strict=True, allow_pickle=False, assume=None)
    assert len(matching.problems) == 1


def test_arrays_survive_and_tensors_are_named() -> None:
    array = np.arange(6, dtype=np.uint32).reshape(2, 3)
    names: list[str] = []

    def keep(tensor: Any, name: str) -> str:
        names.append(name)
        return name

    tree = _tree.encode({"state": {0: {"m": torch.ones(2)}}, "a": [array, torch.zeros(())]}, "opt", keep)
    assert names == ["opt.state.0.m", "opt.a.1"]
    assert _tree.tensors_in(tree) == {("state", 0, "m"): "opt.state.0.m", ("a", 1): "opt.a.1"}
    again = _tree.decode(json.loads(json.dumps(tree)), lambda name, path: (name, path), allow_pickle=False)
    assert again["state"][0]["m"] == ("opt.state.0.m", ("state", 0, "m"))
    assert np.array_equal(again["a"][0], array) and again["a"][0].dtype == array.dtype


def test_pickles_are_read_only_by_those_who_allow_it() -> None:
    tree = _tree.encode({"x": Path("a")}, "v", keep_nothing)
    with pytest.raises(CheckpointError, match="x is a pickled PosixPath"):
        _tree.decode(tree, keep_nothing, allow_pickle=False)
    assert _tree.decode(tree, keep_nothing, allow_pickle=True) == {"x": Path("a")}
    with pytest.raises(CheckpointError, match="cannot save v"):
        _tree.encode(lambda: None, "v", keep_nothing)


def test_a_directory_is_saved_by_one_at_a_time(tmp_path: Path) -> None:
    lock = _directory.open_directory(tmp_path / "a/b")
    with pytest.raises(CheckpointError, match="another process is saving"):
        _directory.open_directory(tmp_path / "a/b")
    lock.release()
    _directory.open_directory(tmp_path / "a/b").release()


def test_only_files_of_dead_saves_are_removed(tmp_path: Path) -> None:
    for name in ("data-0a-host0-0.safetensors", "data-0b-host0-0.safetensors.partial", "mine.txt", "data-of-me.csv"):
        (tmp_path / name).write_text("x")
    manifest = _directory.Manifest({}, {}, [{"name": "data-0a-host0-0.safetensors", "bytes": 1}])
    _directory.commit(tmp_path, manifest)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "data-0a-host0-0.safetensors", "data-of-me.csv", "manifest.json", "mine.txt",
    ]  # fmt: skip
    assert _directory.read_manifest(tmp_path).files == manifest.files


def test_a_lock_ends_with_its_save_and_not_with_a_process_forked_meanwhile(tmp_path: Path) -> None:
    lock = _directory.open_directory(tmp_path)
    unlock = _save._make_file(tmp_path / "x.0a.partial", b"header", 6, {})
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # as a DataLoader's worker, which has all descriptors of its parent
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    try:
        lock.release()
        _directory.open_directory(tmp_path).release()
        _save._clean_partials(tmp_path / "x")
        assert (tmp_path / "x.0a.partial").exists()
        unlock()
        _save._clean_partials(tmp_path / "x")
        assert not (tmp_path / "x.0a.partial").exists()
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(child, 0)


def finished(directory: Path, saved: str) -> None:
    """A checkpoint as a save leaves it."""
    lock = _directory.open_directory(directory)
    (directory / "data-0a-host0-0.safetensors").write_text("x")
    files = [{"name": "data-0a-host0-0.safetensors", "bytes": 1}]
    _directory.commit(directory, _directory.Manifest({}, {}, files, about={"saved": saved}))
    lock.release()


def test_a_series_is_told_from_its_neighbours(tmp_path: Path) -> None:
    series = _directory.Series(str(tmp_path / "run-step{step:03d}-x"))
    assert series.at(7) == tmp_path / "run-step007-x"
    for name in ("run-step007-x", "run-step010-x", "run-step-x", "run-step010-y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / ".lock").touch()
    (tmp_path / "run-step007-x/data-0123456789ab-host0-0.safetensors.partial").touch()
    _directory.commit(tmp_path / "run-step010-x", _directory.Manifest({}, {}, []))
    assert [step for step, _ in series.found()] == [7, 10]
    assert series.finished() == [series.at(10)]
    series.clean(tmp_path / "none")
    assert not (tmp_path / "run-step007-x").exists() and (tmp_path / "run-step010-y").exists()


def test_directories_of_other_programs_are_left_alone(tmp_path: Path) -> None:
    series = _directory.Series(str(tmp_path / "checkpoint-{step}"))
    for step, name in ((1, "model.safetensors"), (2, ".lock"), (3, "notes.txt"), (4, "manifest.json")):
        series.at(step).mkdir()
        (series.at(step) / name).write_text('{"of": "another program"}')
    (series.at(3) / "data-0a-host0-0.safetensors.partial").touch()
    series.at(5).mkdir()  # somebody is about to write there
    held = _directory.open_directory(series.at(6))
    for step in (7, 8, 9):
        finished(series.at(step), f"2026-01-0{step}T00:00:00+00:00")
    (series.at(7) / "notes.txt").touch()
    series.clean(series.at(9))
    series.rotate(1, series.at(9))
    there = {int(path.name[11:]): sorted(entry.name for entry in path.iterdir()) for path in tmp_path.iterdir()}
    held.release()
    assert there == {
        1: ["model.safetensors"],
        3: ["data-0a-host0-0.safetensors.partial", "notes.txt"],
        4: ["manifest.json"],
        5: [],
        6: [".lock"],
        7: ["notes.txt"],
        9: [".lock", "data-0a-host0-0.safetensors", "manifest.json"],
    }


def test_a_series_goes_by_the_time_of_saving(tmp_path: Path) -> None:
    series = _directory.Series(str(tmp_path / "step{step}"))
    for hour, step in enumerate((4000, 5000, 6000, 3100)):  # after going back to 3000
        finished(series.at(step), f"2026-01-01T0{hour}:00:00.5+00:00")
    assert series.finished()[-1] == series.at(3100)
    series.rotate(3, series.at(3100))
    assert sorted(step for step, _ in series.found()) == [3100, 5000, 6000]
    finished(series.at(3200), "2025-12-31T00:00:00+00:00")  # of a host whose clock is behind
    series.rotate(2, series.at(3200))
    assert sorted(step for step, _ in series.found()) == [3100, 3200]


def _piece(**changes: Any) -> dict[str, Any]:
    return {
        "dtype": "F32",
        "shape": [],
        "pieces": [{"file": 0, "offset": 0, "start": [], "size": [], **changes}],
    }


def _manifest(folder: Path, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    content: dict[str, Any] = {
        "format": _directory.FORMAT,
        "version": _directory.VERSION,
        "files": [{"name": "data-0-client.safetensors", "bytes": 4}],
        "tensors": {"x": {"dtype": "F32", "shape": [], "pieces": [{"file": 0, "offset": 0, "start": [], "size": []}]}},
        "objects": {},
        "rng": None,
    }
    (folder / _directory.MANIFEST).write_text(json.dumps(content | changes))
    return folder


@pytest.mark.parametrize(
    "changes",
    [
        {"files": [{"name": "../data-0-client.safetensors", "bytes": 4}]},
        {"files": [{"name": "/etc/passwd", "bytes": 4}]},
        {"files": [{"name": "data-0-../../x.safetensors", "bytes": 4}]},
        {"files": [{"name": "..", "bytes": 4}]},
        {"files": [{"name": "model.safetensors", "bytes": 4}]},
        {"files": [{"name": "data-0-client.safetensors", "bytes": -4}]},
        {"files": [{"name": 5, "bytes": 4}]},
        {"files": []},
        {"files": None},
        {"tensors": {"x": {"dtype": "F32", "shape": [], "pieces": [{"file": -1, "offset": 0}]}}},
        {"tensors": {"x": {"dtype": "F32", "shape": [], "pieces": [{"file": 0, "offset": -8}]}}},
        {"tensors": [1]},
        {"tensors": {"x": {"dtype": "F32", "shape": [], "pieces": []}}},
        {
            "tensors": {
                "x": {"dtype": "F32", "shape": [], "pieces": [{"file": 0, "offset": 0, "start": [0], "size": [1]}]}
            }
        },
        {"files": [{"name": "data-0-client.safetensors", "bytes": 4, "crc32c": 1e308}]},
        {"files": [{"name": "data-0-client.safetensors", "bytes": 4, "crc32c": 2**63}]},
        {"tensors": {"x": _piece(offset=True)}},
        {"tensors": {"x": _piece(offset=2**70)}},
        {"tensors": {"x": _piece(offset=0.0)}},
        {"objects": []},
        {"objects": {"step": 5}},
        {"objects": {"step": {"kind": "valuf", "tree": 1}}},
        {"objects": {"model": {"kind": "state", "tree": {"weight": {"$parameter": "nope"}}}}},
        {"objects": {"model": {"kind": "state", "tree": {"weight": {"$parameter": ["x"]}}}}},
        {"objects": {"model": {"kind": "value", "tree": {"$array": "f4", "data": 3}}}},
    ],
)
def test_a_manifest_names_nothing_outside_its_folder(changes: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "data-0-client.safetensors").write_bytes(b"abcd")
    folder = _manifest(tmp_path / "saved", **changes)
    with pytest.raises(CheckpointError, match="damaged"):
        _sources.open_checkpoint(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"tensors": {"x": _piece() | {"dtype": "F33"}}},
        {"objects": {"step": {"kind": "value", "tree": {"$unheard": 1}}}},
    ],
)
def test_what_this_version_does_not_know_is_named(changes: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "data-0-client.safetensors").write_bytes(b"abcd")
    with pytest.raises(CheckpointError, match=r"F33|\$unheard"):
        _sources.open_checkpoint(_manifest(tmp_path / "saved", **changes))


def test_a_save_that_comes_to_nothing_leaves_nothing(tmp_path: Path) -> None:
    made, there = tmp_path / "made", tmp_path / "there"
    there.mkdir()
    for folder in (made, there):
        lock = _directory.open_directory(folder)
        with pytest.raises(CheckpointError, match="another process is saving"):
            _directory.open_directory(folder)
        lock.release()
        lock.release()
    assert not made.exists() and not list(there.iterdir())
    (there / "mine.txt").touch()
    lock = _directory.open_directory(there)
    (there / ".lock").unlink()  # as by one that was let go after this one had opened it
    again = _directory.open_directory(there)
    again.release()
    lock.release()
    assert (there / "mine.txt").exists()


def test_two_programs_save_into_one_series(tmp_path: Path) -> None:
    series = _directory.Series(str(tmp_path / "s{step}"))

    def save_all(first: int) -> None:
        for step in range(first, 1000, 2):
            directory = series.at(step)
            series.clean(directory)
            lock = _directory.open_directory(directory)
            try:
                (directory / f"data-0{step:x}-client.safetensors").touch()
                files = [{"name": f"data-0{step:x}-client.safetensors", "bytes": 0}]
                now = datetime.now(UTC).isoformat()
                _directory.commit(directory, _directory.Manifest({}, {}, files, None, {"saved": now}))
                series.rotate(2, directory)
            finally:
                lock.release()

    with ThreadPoolExecutor(2) as programs:
        for outcome in [programs.submit(save_all, first) for first in (0, 1)]:
            outcome.result()
    series.clean(series.at(1000))
    assert 2 <= len(series.finished()) <= 3 and [path for _, path in series.found()] == sorted(series.finished())


def test_a_manifest_that_was_changed_is_named(tmp_path: Path) -> None:
    (tmp_path / "data-0-client.safetensors").write_bytes(bytes(256))
    tensors = {"x": _piece(offset=128)}
    files = [{"name": "data-0-client.safetensors", "bytes": 256}]
    rng = {"python": [1.5, None, 2**60, "é😀"]}
    _directory.commit(tmp_path, _directory.Manifest({}, tensors, files, rng, {"saved": "2026-01-01"}))
    assert _directory.read_manifest(tmp_path).rng == rng
    path = tmp_path / _directory.MANIFEST
    path.write_text(path.read_text().replace('"offset":128', '"offset":120'))
    with pytest.raises(CheckpointError, match=r"expected contents of checksum .* got .* has changed the file"):
        _directory.read_manifest(tmp_path)


@pytest.mark.parametrize("name", [_directory.MANIFEST, "model.safetensors", "model.safetensors.index.json", "state.pt"])
def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(CheckpointError, match=f"expected a regular file, got '.*{name}'"):
        _sources.open_checkpoint(tmp_path if name == _directory.MANIFEST else tmp_path / name)


def test_a_pipe_in_a_series_keeps_nobody_waiting(tmp_path: Path) -> None:
    (tmp_path / "run-1").mkdir()
    os.mkfifo(tmp_path / "run-1" / _directory.MANIFEST)
    assert _directory.Series(f"{tmp_path}/run-{{step}}").finished() == [tmp_path / "run-1"]


def test_a_device_in_place_of_a_manifest_is_not_read(tmp_path: Path) -> None:
    (tmp_path / _directory.MANIFEST).symlink_to("/dev/zero")
    with pytest.raises(CheckpointError, match="regular file"):
        _sources.open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("boxes", "wrong"),
    [
        ([((0, 0), (4, 3)), ((0, 3), (4, 3))], None),
        ([((0, 0), (2, 6)), ((2, 0), (2, 2)), ((2, 2), (2, 4))], None),
        ([((0, 0), (4, 6)), ((0, 0), (0, 6))], None),
        ([((0, 0), (4, 3)), ((0, 0), (4, 3))], "in common"),
        ([((0, 0), (3, 6)), ((2, 0), (1, 6))], "in common"),
        ([((0, 0), (4, 3))], "all 24 elements"),
        ([((0, 0), (4, 7))], "inside"),
        ([((-1, 0), (5, 6))], "inside"),
        ([((0, 0), (5, -6))], "inside"),
        ([((0,), (4,))], "2 dimensions"),
    ],
)
def test_pieces_have_each_element_once(boxes: list[tuple[Any, Any]], wrong: str | None) -> None:
    given = [Box(start, size) for start, size in boxes]
    if wrong is None:
        return _plan.check_pieces((4, 6), given)
    with pytest.raises(ValueError, match=wrong):
        _plan.check_pieces((4, 6), given)


def test_a_data_file_is_no_link(tmp_path: Path) -> None:
    folder = _manifest(tmp_path / "saved")
    (tmp_path / "secret").write_bytes(b"abcd")
    (folder / "data-0-client.safetensors").symlink_to(tmp_path / "secret")
    with pytest.raises(CheckpointError, match="symbolic link"):
        _sources.open_checkpoint(folder)


def test_a_data_file_that_was_changed_is_named(tmp_path: Path) -> None:
    folder = _manifest(
        tmp_path / "saved", files=[{"name": "data-0-client.safetensors", "bytes": 4, "crc32c": native.crc32c(b"abcd")}]
    )
    file = folder / "data-0-client.safetensors"
    file.write_bytes(b"abcd")
    checkpoint = _sources.open_checkpoint(folder)
    assert checkpoint.read(checkpoint.tensors["x"]).view(torch.int32).item() == int.from_bytes(b"abcd", "little")
    file.write_bytes(b"abce")
    checkpoint = _sources.open_checkpoint(folder)
    with pytest.raises(CheckpointError, match=r"data-0-client\.safetensors' is damaged"):
        checkpoint.read(checkpoint.tensors["x"])


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", "a/../../b.safetensors"])
def test_an_index_names_nothing_outside_its_folder(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"x": name}}))
    with pytest.raises(CheckpointError, match="does not lie in its folder"):
        _sources.open_checkpoint(path)
