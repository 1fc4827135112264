"""Types of the C++ extension (csrc/bindings). Reached only through ``ptpathways.native``.

Every call that waits releases the GIL, takes a timeout in seconds, and looks for Python signals (Ctrl-C) about ten
times a second. Errors are ``NativeError``; ``ptpathways.native.translated`` turns them into the classes of
``ptpathways.core``.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FunctionType, TracebackType
from typing import Any, Literal, Protocol, TypedDict, final

import numpy as np
import numpy.typing as npt

__version__: str
"""The package version that the extension was built from."""

protocol_version: int
"""Version of the wire protocol (csrc/wire/message.h, kProtocolVersion)."""

library_path: str
"""Absolute path of the shared library itself, which is also the PJRT plugin (it exports GetPjrtApi)."""

class NativeError(RuntimeError):
    """A failed Status. ``code`` is its canonical name, e.g. ``"UNAVAILABLE"``; ``str()`` is its message."""

    code: str

class SupportsBuffer(Protocol):
    """An object of the buffer protocol (PEP 688 gives it a name only from Python 3.12)."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

# --- process-wide

def load_zmq(path: str) -> None:
    """Loads libzmq from ``path`` (a file, or a name for the dynamic linker). Idempotent.

    Raises NativeError (NOT_FOUND, FAILED_PRECONDITION) when it cannot be loaded or lacks a function.
    """

def crc32c(bytes: object, before: int = 0) -> int:
    """CRC-32C of a buffer, after bytes of which it is ``before``."""

def keys_of_role(token: str, role: str) -> str:
    """Digits of a role's token, made of the cluster's (csrc/transport/keys.h)."""

def machine_token() -> str:
    """A text that is equal on processes which can share memory (same machine, same IPC namespace and user)."""

def clean_up_shared_memory(cluster: str) -> int:
    """Removes every shared memory segment of ``cluster``; the number removed."""

def clean_up_dead_shared_memory() -> int:
    """Removes the segments of clusters all of whose processes are gone; the number removed."""

def transfer(token: int, device_index: int) -> int:
    """Copies the value of a buffer of the PJRT plugin to another device, worker to worker; returns at once.

    ``token``: what PJRT_Buffer_UnsafePointer answers for the buffer. Returns the token of the copy, which belongs to
    the caller until ``adopt_next_uploads`` hands it over. Raises NativeError NOT_FOUND, INVALID_ARGUMENT.
    """

def adopt_next_uploads(tokens: Sequence[int]) -> None:
    """Makes this thread's next uploads give handles of the values that ``tokens`` own instead of uploading, in order.

    An empty list drops pending adoptions. Raises NativeError NOT_FOUND.
    """

def adopt_buffer(
    buffer: Buffer,
    device: int,
    dims: Sequence[int],
    tiling: tuple[Sequence[int], Sequence[int]] | None,
    source: int = 0,
    kept: bool = False,
) -> int:
    """A token for a logical buffer, as a tensor of shape ``dims`` on logical device ``device``.

    Args:
        tiling: parts per dimension and tile per device; None for a slice of one device.
        source: token of what it is a copy of, for steps that are being recorded.
        kept: whether somebody else holds the buffer, so that no run may take its memory.

    Raises NativeError: FAILED_PRECONDITION when the buffer lies on other devices or has other shards.
    """

def live_cells(index: int) -> list[BufferCell]:
    """The places of all values that this process's tensors have on logical device ``index``."""

def value_of_buffer(
    buffer: Buffer, device: int, dims: Sequence[int], tiling: tuple[Sequence[int], Sequence[int]] | None
) -> DeviceValue:
    """A logical buffer as a value for ``BufferCell.replace``. Arguments and errors as ``adopt_buffer``."""

def bind_device(index: int, devices: Sequence[int]) -> None:
    """Makes logical device ``index`` stand for these devices of the cluster. Raises NativeError INVALID_ARGUMENT."""

def unbind_device(index: int) -> None:
    """Makes logical device ``index`` stand for nothing. Raises NativeError INVALID_ARGUMENT."""

def set_upload_layout(
    layout: str | tuple[Sequence[int], Sequence[int]],
) -> str | tuple[tuple[int, ...], tuple[int, ...]]:
    """How this thread's uploads lie on slices of several devices, from now on; gives what it was.

    ``"batch"``: the first dimension divided where that is possible, else a copy on each device; ``"copy"``; or parts
    per dimension and tile per device, for tensors of that rank. Raises NativeError INVALID_ARGUMENT.
    """

def start_declaring() -> None:
    """From now on uploads of this thread make buffers whose bytes come from their hosts' pipelines."""

def stop_declaring() -> list[
    tuple[int, int, tuple[tuple[int, ...], tuple[int, ...]] | None, tuple[int, ...], tuple[int, ...]]
]:
    """Ends that. For each upload, in order: logical device, key, tiling, the cluster's devices by shard, and shape.

    The bytes of shard i are awaited under key + i.
    """

# --- input pipelines

@final
class Question:
    """Something asked of a host's input pipeline."""

    @property
    def done(self) -> bool: ...
    def wait(self, timeout_s: float, what: str) -> bytes:
        """The answer's text. Raises NativeError: that of the pipeline, or DEADLINE_EXCEEDED, saying ``what``."""

def mint_pipeline(session: Session) -> int:
    """A number for a new pipeline."""

def open_pipeline(
    session: Session,
    pipeline: int,
    host: int,
    given: bytes,
    *,
    workers: int,
    open_timeout_s: float,
    batch_timeout_s: float,
    name: str,
) -> Question:
    """Starts ``workers`` processes on a host. Raises NativeError (UNAVAILABLE: the host is lost)."""

def feed(session: Session, pipeline: int, host: int, worker: int, keys: Sequence[int], what: str) -> Question:
    """Passes ``what`` to a process, which is to answer with the bytes for ``keys``, in this order."""

def close_pipeline(session: Session, pipeline: int, host: int) -> None:
    """Ends the processes on a host."""

def attach_clients(session: Session) -> bool:
    """Attaches PyTorch/XLA's client in this process, if there is one, to the cluster of ``session``.

    Raises NativeError FAILED_PRECONDITION when that has other devices, by number and island.
    """

def owning_tensors(tensor_class: type) -> list[Any]:
    """Every instance of ``torch.Tensor``, which is given, that something in Python refers to. Takes milliseconds.

    Left out are objects that only torch's C++ side holds, such as those of tensors that autograd saved: one of its
    threads may be letting them go, and a new reference to one would destroy it twice.
    """

def owns_its_tensor(tensor: Any) -> bool:
    """Whether this object of torch.Tensor keeps its tensor alive, and is not kept by it."""

class TensorValues:
    """Which values tensors on devices have, and how many have them, read in memory of torch 2.9.0 and torch_xla 2.9.0.

    ``tensor``: a tensor on a device that has its value and no views; what its objects are like is learned from it. With
    other versions neither may be used.
    """

    def __init__(self, tensor: Any) -> None: ...
    def first_shared(self, tensors: list[Any]) -> int:
        """The place of the first tensor on a device whose value another one has, too, or a computation that has not
        been handed over, or of which that cannot be told; -1 when there is none. A ``detach()`` counts as the same
        tensor."""

    def first_view(self, tensors: list[Any]) -> int:
        """The place of the first tensor that is a view of another one, or of its own memory; -1 when there is none."""

    def have(self, tensors: list[Any], handles: array[int]) -> bool:
        """Whether each tensor has the value that PyTorch/XLA names by that handle; False where that cannot be told, and
        where it is still to be computed. A view is looked at as it was last brought up to date."""

def count_holders(tensors: dict[Any, Any]) -> list[list[int]]:
    """Who holds the tensors that are a dictionary's values. Four columns: how often Python refers to each, weakly too,
    how many tensors have its memory, how often torch refers to it, and its memory's address
    (``untyped_storage()._cdata``)."""

def are_held(places: array[int], count: int) -> bool:
    """Whether each memory, given by its address, is held so often."""

def watch_interrupts(main_thread: int) -> None:
    """From now on SIGINT ends waits of this process's main thread inside PyTorch/XLA, with KeyboardInterrupt.

    Args:
        main_thread: its ``threading`` identity.
    """

def set_source_locator(locator: Callable[[], str] | None) -> None:
    """``locator()`` names the user's ``file:line``; called under the GIL when a function is registered by torch_xla."""

def set_compile_listener(
    listener: Callable[[str, list[str], list[str], list[tuple[str, str, str, str]], str, int], None] | None,
) -> None:
    """``listener(name, parameters, results, instructions, source, numbers)`` hears of HLO modules that are compiled.

    Called under the GIL on the compiling thread; what it raises is dropped. ``parameters``, ``results``: types such as
    ``"f32[8,128]"``. An instruction is (opcode, type, detail, ``file:line`` or empty); detail: a constant's value, a
    parameter's number, a slice's ranges, else a number for all attributes. ``source``: what the locator said.
    ``numbers``: how many constants and starts of slices are arguments, so that modules with others need no compile.
    """

def waits_under_way() -> list[tuple[int, str, float]]:
    """Waits of this process's threads in the extension: the thread (``threading.get_ident``), for what, and for how
    many seconds. Short ones may be missing."""

def error_in(text: str) -> tuple[str, str] | None:
    """Code and message of the plugin's error out of which PyTorch/XLA has made the error message ``text``; None: it is
    none of the plugin's."""

def account_fetches_of_this_thread(account: bool) -> None:
    """Whether fetches that the calling thread asks for from now on count as waits of the client (``wait_stats``)."""

# --- captured steps

@final
class DeviceValue:
    """A value of the PJRT plugin: a tensor on a slice. Keeps it on its devices."""

    @property
    def dtype(self) -> str:
        """``"f32"`` and so on."""
    @property
    def dims(self) -> tuple[int, ...]:
        """Of the whole tensor."""
    @property
    def shard_dims(self) -> tuple[int, ...]:
        """Of what each device holds, with padding."""
    @property
    def device(self) -> int:
        """The logical device, which is torch's number of it."""
    @property
    def devices(self) -> tuple[int, ...]:
        """The cluster's numbers: shard i lies on ``devices[i]``."""
    @property
    def tiling(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Parts per dimension, and for each shard the row-major number of its tile; None on a slice of one device."""
    @property
    def is_uploaded_scalar(self) -> bool: ...
    def boxes(self) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """First element and number of elements of each shard in the tensor, without padding."""
    def buffer(self, kept: bool = False) -> Buffer:
        """The logical buffer; with ``kept`` no run is given its memory from now on. Raises NativeError: the root cause
        why the value will never exist.
        """

@final
class BufferCell:
    """Where a PJRT buffer keeps its value; captured steps put new values there."""

    @property
    def alive(self) -> bool:
        """False once the buffer was destroyed, deleted or donated."""
    @property
    def token(self) -> int:
        """Names the value in it; 0 when it is not alive."""
    @property
    def value(self) -> DeviceValue | None: ...
    def replace(self, value: DeviceValue) -> bool:
        """Puts another value there; False, and nothing happens, when the cell is not alive."""

class Guards:
    """Whether dictionaries still hold what they held. Borrows: the maker keeps alive everything in ``entries``."""

    def __init__(
        self,
        entries: Sequence[tuple[dict[Any, Any], Any, Any, bool]],
        orders: Sequence[tuple[dict[Any, Any], tuple[Any, ...]]] = ...,
        sizes: Sequence[tuple[Any, int]] = ...,
        functions: Sequence[tuple[FunctionType, CodeType, Any, Any]] = ...,
    ) -> None:
        """Each entry: dictionary, key, what has to be there, and whether an equal object of its type will do. Orders:
        dictionary and its keys in order, the same objects or equal texts. Sizes: container and length. Functions: with
        their ``__code__``, ``__defaults__`` and ``__kwdefaults__``, the same objects."""

    def hold(self) -> bool:
        """Whether all do. Costs one comparison per dictionary that has not changed since, and one per size."""

@final
class HeldProfiler:
    """A profile function that has been taken down."""

def hold_profiler() -> HeldProfiler:
    """Takes this thread's profile function down (``sys.setprofile``), also one that is written in C."""

def put_back_profiler(held: HeldProfiler) -> None:
    """Puts it up again, in place of what is there now. A frame at the same depth must have taken it down."""

def asked_cells(ask: Callable[[], object]) -> list[BufferCell]:
    """Calls ``ask``. The cells of the buffers of which it asks PJRT_Buffer_IsDeleted on this thread, each once."""

FileBox = tuple[int, int, Sequence[int], Sequence[int], Sequence[int], Sequence[int]]
"""File, offset of the tensor in it, its dimensions, where the box starts in it, where in the shard, and its size."""

@final
class FileOperation:
    """What a host does with files, under way."""

    def wait(self, timeout_s: float, what: str = ...) -> None:
        """Raises NativeError: DEADLINE_EXCEEDED, saying ``what`` was expected, or why the host could not do it."""
    def done(self) -> bool: ...
    @property
    def bytes(self) -> int:
        """Of tensors, written or read."""
    @property
    def crc32c(self) -> int:
        """Of the whole file, when one was made."""
    @property
    def seconds(self) -> float:
        """What it took the host."""

def save_values(
    *,
    host: int,
    path: str,
    file_bytes: int,
    create: bool,
    header: bytes,
    values: Sequence[tuple[DeviceValue, int, Sequence[FileBox]]],
) -> FileOperation:
    """Has a host write boxes of shards that lie there into a file, as they are now; returns at once.

    ``values``: a value, the number of its shard, and boxes, for each of these shards.

    ``create``: the file is made, and gets its name when it is on the disk; otherwise it is there with its full size.
    """

def load_values(
    session: Session,
    *,
    host: int,
    files: Sequence[tuple[str, int, int | None]],
    values: Sequence[tuple[DeviceValue, int, Sequence[FileBox]]],
) -> FileOperation:
    """Has a host fill shards of announced values out of files, given as (path, bytes, checksum if it is known).

    ``values`` as for ``save_values``; without any it only looks for the files.
    """

def announce_values(like: Sequence[DeviceValue]) -> list[DeviceValue]:
    """For each a value of its type, lying as it does, whose bytes ``load_values`` brings. Raises NativeError."""

def start_recording() -> None:
    """From now on the plugin notes every execution, upload, copy and fetch of this process.

    Raises NativeError FAILED_PRECONDITION: it does already.
    """

def stop_recording() -> dict[str, Any]:
    """What was noted, in order, as ``{"events": [...], "values": {token: ...}, "functions": [Function]}``.

    An event is a dictionary by ``kind``: run (function, identity, what, device, donated, and the tokens of
    ``arguments`` and ``results``), gang (what), upload (value, digest), copy (source, result), fetch (value). A value
    has dtype, dims, shard_dims, device, devices and tiling as a ``DeviceValue`` has, scalar (its bits, if a scalar was
    uploaded, else None) and value (DeviceValue).
    """

def digest(array: npt.NDArray[Any]) -> int:
    """A number that differs, as good as always, for different contents; of uploads, too. The array must be dense."""

@final
class Replay:
    """A captured step: a program whose arguments and results are the values of PJRT buffers."""

    def __init__(
        self,
        program: Program,
        inputs: Sequence[tuple[str, int, bool, DeviceValue]],
        outputs: Sequence[tuple[Sequence[int], bool, DeviceValue]],
        *,
        states: int,
        feeds: int,
    ) -> None:
        """``inputs``: for each argument ``"state"``, ``"feed"`` or ``"constant"``, its number among these (not of
        constants), whether a run may take its memory, and a value that it was. ``outputs``: for each result the states
        that it replaces, whether ``run`` returns it, and a value that it was.

        Raises NativeError INVALID_ARGUMENT.
        """
    def bind(self, state: int, cell: BufferCell) -> None:
        """The state lies in this buffer from now on."""
    def check_states(self) -> None:
        """Raises NativeError FAILED_PRECONDITION where ``run`` would refuse a state: its type, or how it lies."""
    def run(self, feeds: Sequence[npt.NDArray[Any] | DeviceValue]) -> list[int]:
        """Submits a run and puts new values into the states, at once.

        A feed is a value, or the bytes of the whole tensor, to be uploaded the way the argument lies.

        Returns the tokens of what is returned, by result; each is the caller's until ``adopt_next_uploads``.
        Raises NativeError: FAILED_PRECONDITION, with nothing changed, when a state's buffer is gone, or an argument has
        another type, lies another way or on other devices; INVALID_ARGUMENT.
        """

# --- HLO modules

def annotate_hlo(
    module: bytes,
    parameters: Sequence[bytes | None],
    results: Sequence[bytes | None],
    donors: Sequence[int] | None = None,
) -> bytes:
    """``module`` (HloModuleProto) with a layout over the partitions for each parameter and result of its entry.

    ``parameters``, ``results``: one serialized OpSharding each (``b""`` is a value: replicated), in order, or an empty
    list for "leave them all". None leaves that one, which is replicated unless the module says otherwise. ``donors``:
    numbers of exactly those parameters whose memory the program may take; None leaves what the module says.

    Raises NativeError: INVALID_ARGUMENT (not a module; counts differ; a donor out of range), UNIMPLEMENTED (all
    parameters in one tuple).
    """

# --- compiling for devices that are not here

class CompiledMemoryDict(TypedDict):
    """Bytes of one device."""

    arguments: int
    outputs: int
    aliased: int  # part of both
    temporary: int
    peak: int  # 0: the plugin does not say
    generated_code: int

class CompiledDict(TypedDict):
    memory: CompiledMemoryDict
    costs: dict[str, Any]  # XLA's cost analysis, "flops", "optimal_seconds", ...; empty: the plugin has none
    flops: dict[str, int]  # of products and convolutions on all devices together, by element type
    # Opcode, bytes of one device, groups of positions (of a permutation: pairs; none: all). None: not shown.
    collectives: list[tuple[str, int, list[list[int]]]] | None

class Topology:
    """Devices that a plugin compiles for, here or not."""

    def __init__(self, plugin: str, name: str, options: dict[str, str | bool | int | float | list[int]]) -> None:
        """Loads the plugin at the path ``plugin``; ``name`` and ``options`` as it reads them.

        Raises NativeError: NOT_FOUND (no such plugin), or what the plugin says against them.
        """
    @property
    def device_kinds(self) -> list[str]: ...
    @property
    def platform_version(self) -> str: ...
    def compile(self, module: bytes, partitions: int) -> CompiledDict:
        """Compiles a HloModuleProto, with its shardings, for the first ``partitions`` devices; nothing can be run.

        Raises NativeError: INVALID_ARGUMENT, RESOURCE_EXHAUSTED (it does not fit), or what else the compiler says.
        """

# --- worker

class WorkerOptions(TypedDict, total=False):
    """Documents the keys of ``run_worker``'s options; all texts unless said otherwise."""

    controller: str  # endpoint, "ipc://..." or "tcp://host:port". Required
    name: str  # unique among live hosts of the cluster. Required
    island: str  # default: the name
    plugin: str  # path of the PJRT plugin. Required
    platform: str  # "cpu", "cuda", "tpu". Required
    create_options: dict[str, str | bool | int | float | list[int]]  # PJRT_Client_Create's named values
    island_hosts: int  # how many hosts' plugins make one client together; 0: this host's has its own
    island_timeout_s: float  # how long the first of them waits for the others
    node_id_option: str  # the create option by which the plugin takes this host's number; empty: none
    num_nodes_option: str  # and the number of hosts
    memory_limit_bytes: int  # per device; 0: what the plugin reports
    cache_dir: str  # folder for compiled programs, only this user's to write; empty: none
    runtime_dir: str  # where ipc sockets and files of the moment go; empty: no ipc sockets
    data_endpoint: str  # where peers connect for bulk data; empty: "ipc://<runtime_dir>/<name>.data"
    advertise: str  # the host under which peers reach data_endpoint; empty: the one it is bound to
    log_level: str  # "error", "warning", "info", "debug"
    parent_pid: int  # exit when this process is gone; 0: no such process
    connect_timeout_s: float  # how long to try to reach the controller; default 30

def run_worker(options: dict[str, object]) -> int:
    """Runs a worker in this process until its controller ends, SIGTERM comes or its parent is gone.

    The process's exit code: 0 told to stop, 1 failed (the reason is on stderr), 2 refused by the controller,
    3 the parent or the controller is gone. The cluster's join token is taken from PTPATHWAYS_TOKEN in the environment,
    and removed there.
    """

# --- controller

@final
class Controller:
    """A controller with its threads. One embedded controller per process (``embedded``), any number otherwise."""

    def __init__(self, options: dict[str, object]) -> None:
        """Binds and starts.

        Keys: ``bind`` (list of endpoints, e.g. ``["ipc:///run/x/controller"]``, ``["tcp://127.0.0.1:0"]``; port 0
        takes a free one), ``cluster`` (name of at most 32 letters, digits and dashes; empty: a random one),
        ``embedded`` (bool, default True: ``Session.connect('')`` of this process reaches it),
        ``heartbeat_interval_s`` and ``lease_s`` (float, defaults 0.5 and 60), ``overdue_s`` (float, default 30: the
        log tells of a host that finishes none of its computations for longer; 0: never), ``expected_hosts`` (list of
        names: these hosts are numbered in this order, whoever calls first), ``policy`` ("fifo", "fair" or "priority"),
        ``queue_ms`` (float, default 20: estimated work on a device at which it takes no further gang), ``log_level``
        (text), ``token`` (the cluster's join token; empty: loopback and ipc endpoints only).

        Raises NativeError: ALREADY_EXISTS (an embedded controller is running; address in use), INVALID_ARGUMENT.
        """
    @property
    def endpoints(self) -> list[str]:
        """Where it is bound, with real port numbers, in the order of ``bind``."""
    @property
    def cluster(self) -> str: ...
    def rotate(self, cluster: str, worker: str, client: str) -> None:
        """The join token is to be ``cluster``; ``worker`` and ``client`` are those of the roles, made of it.

        Returns at once. Members are told; when all have heard, or were given up, ``rotating`` ends, and only the new
        tokens are admitted.

        Raises NativeError: FAILED_PRECONDITION (there is no token, one is being changed, or hosts of one island hold
        connections that do not survive it).
        """
    @property
    def rotating(self) -> bool: ...
    @property
    def token(self) -> str:
        """The cluster's join token once it was changed; empty before."""
    def wait_for_hosts(self, count: int, timeout_s: float) -> None:
        """Returns once ``count`` hosts are alive.

        Raises NativeError: DEADLINE_EXCEEDED naming how many came and which; UNAVAILABLE at once when
        ``host_exited`` was called for a host that had not joined.
        """
    def status_json(self) -> str:
        """The cluster as JSON: ``{"cluster", "build", "policy", "controller": {"pid", "standby", "takeovers"},
        "hosts": [...], "islands": [...], "clients": [...], "slices": [...], ...}``."""
    def host_exited(self, name: str, reason: str) -> None:
        """The launcher saw the worker process called ``name`` end. Its buffers and runs fail with ``reason`` now."""
    def close(self, reason: str) -> None:
        """Tells every worker and client goodbye, stops the threads. Idempotent."""

@final
class Standby:
    """What goes on with a standing controller whose process ends. For a process with one thread.

    In turn: ``prepare``, fork, ``serve`` in the child and ``follow`` in the parent; again when the child was killed.
    """

    def __init__(self, options: dict[str, object]) -> None:
        """``options``: as for ``Controller``."""
    @property
    def cluster(self) -> str: ...
    @property
    def endpoints(self) -> list[str]:
        """Where the child listens, or is to listen."""
    @property
    def token(self) -> str:
        """As ``Controller.token``; empty also when this process does not follow any more."""
    @property
    def is_successor(self) -> bool:
        """The next child, or this one, is not the first."""
    def prepare(self) -> None:
        """Raises NativeError: RESOURCE_EXHAUSTED (no memory to share with the child)."""
    def serve(self) -> Controller:
        """In the child: the controller, which goes on where the process before it was.

        Raises NativeError: as ``Controller``.
        """
    def follow(self, child: int) -> tuple[int, int, str]:
        """In the parent: does what the child does, until it ends; passes SIGINT, SIGTERM and SIGHUP on to it.

        These and SIGCHLD must be blocked. The child's exit code, the signal that ended it (0: it exited), and why it
        cannot be taken over, empty if it can.
        """

# --- simulated devices

@final
class SimulatedTrace:
    """What every simulated device did when. A copy."""

    def __len__(self) -> int: ...
    @property
    def dropped(self) -> int:
        """Intervals that were not kept."""
    def intervals(self) -> list[tuple[int, int, str, str, int, int, int, int]]:
        """(device, client, program, node, run, arrived, start, end); times in ns of the steady clock."""
    def to_chrome_json(self) -> str: ...
    def to_svg(
        self, *, from_ms: float = ..., to_ms: float = ..., max_devices: int = ..., width: float = ...
    ) -> str: ...

class SimulatedStats(TypedDict):
    """``last_enqueue_ns`` is of ``time.monotonic_ns``: when the last computation entered a device's queue."""

    enqueued: int
    last_enqueue_ns: int
    messages: int
    waiting_gangs: int
    buffers: int
    bytes: int
    intervals_dropped: int
    deadlocks: list[str]
    last_refusal: str

@final
class SimulatedCluster:
    """Hosts with simulated devices, joined to this process's embedded controller, on one thread of their own."""

    def __init__(self, options: dict[str, object], timeout_s: float = ...) -> None:
        """Joins them.

        Keys: ``hosts``, ``devices_per_host``, ``islands``, ``memory_bytes`` (int), ``compile_us``, ``cost_us``,
        ``collective_us``, ``latency_us``, ``bandwidth_gbs``, ``local_bandwidth_gbs`` (float), ``costs_us`` (list of
        (pattern, us)), ``rendezvous`` (text).

        Raises NativeError: INVALID_ARGUMENT, FAILED_PRECONDITION (no embedded controller), DEADLINE_EXCEEDED.
        """
    def set_cost(self, pattern: str, cost_us: float) -> None:
        """What functions with such a name take that are registered from now on; counts before earlier patterns."""
    def lose_host(self, host: int, reason: str = ...) -> None:
        """The host stops in the middle of everything. Raises NativeError NOT_FOUND."""
    def trace(self, clear: bool = ...) -> SimulatedTrace: ...
    def stats(self) -> SimulatedStats: ...
    def close(self) -> None:
        """Ends hosts and thread; close the controller first. Idempotent."""

# --- session

class DeviceDict(TypedDict):
    local_ordinal: int
    kind: str
    memory_limit_bytes: int
    plugin_id: int  # what its plugin calls it

class HostDict(TypedDict):
    """One host, as in wire::HostDescription."""

    host: int
    name: str
    machine: str
    data_endpoint: str
    platform: str
    platform_version: str
    island: str
    pid: int
    alive: bool
    first_device: int
    devices: list[DeviceDict]

class WaitStats(TypedDict):
    waits: int
    seconds: float

class TransferStats(TypedDict):
    bytes_uploaded: int
    bytes_fetched: int
    runs: int
    copies: int

@final
class Buffer:
    """Handle of a logical buffer, or of one shard of it; dropping the last handle frees the buffer on its workers."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one shard."""
    @property
    def dtype(self) -> str:
        """PJRT's name of the element type in lower case, e.g. ``"f32"``, ``"bf16"``, ``"s64"``, ``"pred"``."""
    @property
    def device(self) -> int:
        """Of the only shard. Raises NativeError INVALID_ARGUMENT for a buffer of several."""
    @property
    def devices(self) -> list[int]:
        """Shard i lies on ``devices[i]``."""
    @property
    def shard_count(self) -> int: ...
    @property
    def given_up(self) -> bool:
        """Whether a run has been given its memory (donation); then nothing can be done with it any more."""
    def shard(self, index: int) -> Buffer:
        """Shard ``index`` alone."""
    def result(self, timeout_s: float) -> npt.NDArray[Any]:
        """The value of the only shard, fetched. bf16 and fp8 come as their bits (uint16, uint8).

        Raises NativeError: DEADLINE_EXCEEDED, or the root cause when the value will never exist.
        """
    def fetch(self, timeout_s: float) -> list[npt.NDArray[Any]]:
        """The values of all shards, fetched at the same time. Raises as ``result`` does."""
    def done(self) -> bool:
        """Whether the value exists or never will; never waits."""
    def error(self) -> str | None:
        """Why the value will never exist; None while that is not known, and when it exists."""
    def wait(self, timeout_s: float) -> None:
        """Waits until the value exists on its devices. Raises as ``result`` does."""
    def notify(self, descriptor: int) -> None:
        """Adds 1 to an eventfd once the value exists or never will; for event loops. No thread of Python is needed.

        The descriptor is duplicated, so the caller may close it at any time. Raises NativeError INVALID_ARGUMENT.
        """
    def copy_to(self, device: int) -> Buffer:
        """A copy of the only shard on another device; worker to worker, returns at once."""

class SliceDict(TypedDict):
    slice: int
    devices: list[int]

@final
class Program:
    """A registered program; dropping it unregisters it."""

    @property
    def name(self) -> str: ...
    def wait_ready(self, timeout_s: float) -> None:
        """Waits until every host has its plan and has compiled what it names.

        Raises NativeError with the first host's error, or DEADLINE_EXCEEDED.
        """

@final
class Function:
    """A registered computation; dropping it unregisters it."""

    @property
    def name(self) -> str: ...
    @property
    def source(self) -> str:
        """The user's file:line; may be empty."""
    @property
    def format(self) -> str:
        """``"hlo"`` or ``"mlir"``."""
    @property
    def module(self) -> bytes:
        """As it was registered: a worker changes a copy of it for its devices before it compiles it."""

@final
class Session:
    """A client's connection to a cluster."""

    @staticmethod
    def connect(
        controller: str = ...,
        name: str = ...,
        timeout_s: float = ...,
        weight: float = ...,
        priority: int = ...,
        token: str = ...,
    ) -> Session:
        """Connects to the controller at the endpoint, or with ``''`` to this process's embedded one.

        ``weight`` is the client's share under the fair policy, ``priority`` its class under the priority policy.
        ``token``: the cluster's join token, if it has one.

        Raises NativeError: UNAVAILABLE (nobody answers), FAILED_PRECONDITION (versions differ; no embedded one).
        A signal's handler of Python's, such as Ctrl-C's, ends the wait for the answer.
        """
    def make_current(self) -> None:
        """Makes it the session that the PJRT plugin of this process attaches to."""
    def hosts(self) -> list[HostDict]: ...
    @property
    def device_count(self) -> int: ...
    @property
    def cluster(self) -> str: ...
    def register(
        self,
        module: bytes,
        format: Literal["hlo", "mlir"],
        *,
        devices: Sequence[int] | None = None,
        name: str = ...,
        options: bytes | None = None,
        source: str = ...,
        outputs: Sequence[tuple[str, Sequence[int]]] | None = None,
    ) -> Function:
        """Registers a computation. ``devices``: None for one that runs on any one device; else one gang over all.

        ``module``: HloModuleProto bytes ("hlo"), or MLIR text or bytecode ("mlir"). ``options``: CompileOptionsProto
        bytes. ``source``: the user's file:line, for messages. ``outputs``: (dtype, dims) of one device's results. Waits
        for the compile only when these are not given and cannot be read from the module.
        Raises NativeError INVALID_ARGUMENT with the compiler's message.
        """
    def put(self, array: npt.NDArray[Any] | SupportsBuffer | np.generic, device: int, *, dtype: str = ...) -> Buffer:
        """Uploads a copy of ``array``; returns at once. ``dtype``: what its bits are, e.g. ``"bf16"`` in uint16."""
    def put_sharded(self, shards: Sequence[npt.NDArray[Any]], devices: Sequence[int], *, dtype: str = ...) -> Buffer:
        """Uploads one logical buffer whose shard i is a copy of ``shards[i]``, on ``devices[i]``; returns at once."""
    def run(self, fn: Function, args: Sequence[Buffer], device: int) -> list[Buffer]:
        """Submits one run on ``device``; returns the results' handles at once."""
    def register_program(
        self,
        name: str,
        plans: Sequence[Mapping[str, Any]],
        inputs: Sequence[Mapping[str, Any]],
        outputs: Sequence[Mapping[str, Any]],
        *,
        functions: Sequence[Function],
        source: str = ...,
    ) -> Program:
        """Registers a program: a plan for every host that takes part (``ptpathways.ir`` makes them and has
        their types). Returns at once. ``function`` in a plan's steps is an index into ``functions``.

        Raises NativeError INVALID_ARGUMENT, UNAVAILABLE (a host is lost). What a host finds wrong with its plan is
        raised by ``Program.wait_ready`` and by the results of runs.
        """
    def times_of(
        self, program: Program, device: int, timeout_s: float
    ) -> tuple[int, list[tuple[int, int, list[tuple[int, str, int, int, int]]]]]:
        """When the computations of the program's last runs began and ended on the host of ``device``, and by how much
        real time is ahead of these times: nanoseconds, and for each run its number, the number of computations that
        are missing, and of the others device, node, the node's place in the program, start and end.

        Raises NativeError DEADLINE_EXCEEDED, UNAVAILABLE, DATA_LOSS.
        """
    def run_program(
        self, program: Program, args: Sequence[Buffer | Sequence[Buffer]], donated: Sequence[int] = ...
    ) -> list[Buffer]:
        """Submits one run; returns the results' handles at once. One message per host, whatever the number of nodes.

        An argument is a buffer laid out as the program says, or one single-shard buffer per shard. ``donated``: numbers
        of the arguments that the run may overwrite; their handles are of no use afterwards.
        Raises NativeError INVALID_ARGUMENT (number, type, devices, an argument given up before), UNAVAILABLE.
        """
    def bench_program(self, program: Program, args: Sequence[Buffer], count: int) -> float:
        """Submits ``count`` runs, each one's results being the next one's first arguments; the seconds until all are
        done. A loop in C++."""
    def bench_program_round_trip(self, program: Program, args: Sequence[Buffer], count: int) -> list[float]:
        """The same, waiting for each; the seconds of each. A loop in C++."""
    def request_slice(
        self,
        device_count: int,
        *,
        island: str = ...,
        platform: str = ...,
        min_memory_bytes: int = ...,
        hosts: int = ...,
        among: Sequence[int] = ...,
        timeout_s: float = ...,
    ) -> SliceDict:
        """Asks the resource manager for devices of one island (paper 4.1). ``hosts``: spread over so many; 0: any.

        ``among``: numbers of the hosts that it may take them from; none: any.

        Raises NativeError: INVALID_ARGUMENT or RESOURCE_EXHAUSTED saying what there is, DEADLINE_EXCEEDED.
        """
    def release_slice(self, slice: int) -> None: ...
    def bench_pipelined(self, fn: Function, args: Sequence[Buffer], device: int, count: int) -> float:
        """Submits ``count`` runs without waiting, then waits for all; the seconds it took. A loop in C++."""
    def bench_round_trip(self, fn: Function, args: Sequence[Buffer], device: int, count: int) -> list[float]:
        """Submits and waits ``count`` times; the seconds of each. A loop in C++."""
    def drain(self, timeout_s: float) -> None:
        """Waits until everything submitted so far has completed. Raises NativeError DEADLINE_EXCEEDED."""
    def take_failure(self) -> None:
        """Raises the NativeError of the first run that has failed since this was called last."""
    @property
    def client_index(self) -> int:
        """This client's number at the controller."""
    def status_json(self, timeout_s: float) -> str:
        """The cluster's state as the controller sees it; the same JSON as ``Controller.status_json``.

        Raises NativeError DEADLINE_EXCEEDED, UNAVAILABLE.
        """
    def silent_hosts(self) -> list[str]:
        """Names of hosts that the controller has heard nothing of for a while; they may come back."""
    def sends(self) -> list[tuple[str, int]]:
        """To which hosts this client is sending just now, and how many values."""
    def pending(self) -> list[tuple[str, str, list[int], float]]:
        """What has been sent and not been answered, the oldest first: its sort (``run``, ``compile``, ``prepare``,
        ``fetch``), what it is, the hosts that have not answered, and for how many seconds."""
    def activity(self, device: int, timeout_s: float) -> list[tuple[str, str, float]]:
        """What the host of ``device`` is doing: the sort (``runs``, ``compiles``, ``receives from host 'a'``...), what,
        and for how many seconds.

        Raises NativeError DEADLINE_EXCEEDED, UNAVAILABLE.
        """
    def wait_stats(self) -> WaitStats: ...
    def transfer_stats(self) -> TransferStats: ...
    def close(self, reason: str = ...) -> None:
        """Says goodbye; pending waits fail with ``reason``. Idempotent."""
    def __enter__(self) -> Session: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

class CollectiveGroup:
    """One rank of processes that reduce together without a cluster, over the transport of islands that span hosts.

    ``options``: ``limit_s`` of one wait (60), ``chunk_bytes``, ``slots`` and ``spin_us`` of the lanes, ``listen``: an
    endpoint such as ``tcp://127.0.0.1:*``, to use messages in place of shared memory (``connect`` must follow).

    Raises NativeError: INVALID_ARGUMENT for a rank that is not below ``size``.
    """

    def __init__(self, name: str, rank: int, size: int, options: Mapping[str, Any] = ...) -> None: ...
    @property
    def endpoint(self) -> str:
        """Where this rank listens; empty with shared memory."""
    def connect(self, endpoints: Sequence[str]) -> None:
        """Where all ranks listen, by rank."""
    def all_reduce(self, array: Any, reduction: str = ...) -> None:
        """Reduces a dense, writable array over all ranks, in place. Blocks; lets go of the GIL.

        Raises NativeError: DEADLINE_EXCEEDED naming the ranks that did not arrive, UNIMPLEMENTED for types without the
        arithmetic, INTERNAL when ranks bring different sizes.
        """
    def close(self) -> None:
        """Leaves the group."""
