"""A class per situation that a caller can handle. The message says what was required, what was got, what to do."""

from __future__ import annotations


class PathwaysError(RuntimeError):
    """Base class of all errors of this package.

    It is a RuntimeError because that is what PyTorch raises: if the computation of a value that is read through PyTorch
    (``tensor.item()``) failed, a plain RuntimeError may be raised with the message of the class below.

    Raised itself only for failures that a caller can only report, such as an internal invariant that does not hold.
    Please report it with its message.
    """


class NotInitialized(PathwaysError):
    """Signals that a call needs a cluster and the process has none.

    Raised by calls that need a cluster before ``init`` or after ``shutdown``, in a process forked from a member of a
    cluster, and by slices, functions and programs with ``backend="xla-cpu"``. Call ``init`` first.
    """


class AlreadyInitialized(PathwaysError):
    """Signals that this process cannot join the cluster that a further ``init`` asks for.

    Raised by ``init`` if the running cluster differs in a given option, or if the backend or the number of torch
    devices differs from that of the process's former cluster. PyTorch/XLA starts its runtime once per process. The same
    ``init`` again returns the running cluster. For another cluster, call ``shutdown`` first or restart the process, as
    the message says.
    """


class RuntimeAlreadyStarted(PathwaysError):
    """Signals that PyTorch/XLA had started its own runtime before ``init``.

    Raised by ``init``. PyTorch/XLA starts its runtime when the first tensor goes to an XLA device, or when devices are
    listed. Call ``init`` before that.
    """


class InvalidOption(PathwaysError, ValueError):
    """Signals an option, or the environment variable that stands for it, whose value cannot be used.

    Raised by ``init``, ``Options`` and ``Simulated``, and by calls whose option does not suit the cluster or cannot be
    parsed (``trace``, ``compile_for``, ``Cluster.slice(min_memory=...)``). The message has the value and what is
    allowed.
    """


class ConnectionFailed(PathwaysError):
    """Signals that the controller cannot be reached, or that the connection to it ended.

    Raised by ``init``, and by waits after the controller has ended. Check the address and that the controller runs.
    """


class VersionMismatch(PathwaysError):
    """Signals two parts of different versions: client and controller, worker and controller, or Python and C++.

    Raised by ``init``, also if torch or torch_xla lacks a function that this package uses, and by a worker that joins.
    Install the same version on every host; after an upgrade in a source checkout, build the extension again.
    """


class PluginNotFound(PathwaysError):
    """Signals that a platform's PJRT plugin is not installed, or is not at the given path.

    Raised when workers start, and by ``compile_for``. Install the package that the message names, or give the plugin's
    path.
    """


class HostLost(PathwaysError):
    """Signals that a host, or the worker process on it, ended or stopped answering while something depended on it.

    Raised by waits for values that lived on that host or were computed there, by ``init`` if a worker dies while it
    starts or the running cluster has lost a host, and by ``VirtualSlice.move``. Restart from a checkpoint. The message
    has the host's name and the reason.
    """


class OutOfDeviceMemory(PathwaysError):
    """Signals that a computation or a buffer needs more device memory than can ever be free for it.

    Raised by waits for its result, and by a pipeline's first ``step``. The message has the sizes. Use a smaller batch,
    shard over more devices, or recompute activations.
    """


class InputPipelineFailed(PathwaysError):
    """Signals that a dataset's code raised in an input pipeline on a worker's host, or that its process ended.

    Raised by loops over ``data.remote``, and by reads of values computed from the batch. The message names the host and
    the batch, and has the original traceback.
    """


class CompileFailed(PathwaysError):
    """Signals that the devices' compiler refused a computation.

    Raised by waits for its results, and by ``compile_for`` if the compiler ends without an answer. For a computation,
    the message has the compiler's reason and the line of the user's program.
    """


class TooManyRecompiles(PathwaysError):
    """Signals that more computations were compiled after warm-up than ``recompile_limit``.

    Raised with ``init(recompiles="raise")`` at the step boundary or read that caused the compile. The message has the
    cause of the last one; ``recompiles`` lists all.
    """


class CaptureMismatch(PathwaysError):
    """Signals that replays of a captured step did something else than its function does.

    Raised by the call of the step that is the audit. What the replays since the audit before computed may be wrong. The
    message has the difference. Leave the step uncaptured, or make what it depends on an argument.
    """


class ConcurrentUse(PathwaysError):
    """Signals that two threads compute on one device at the same time, which PyTorch/XLA does not support.

    Raised where the second thread begins, before it changes anything. The message has both threads and lines. Give each
    thread a slice of its own, or use a lock around each thread's step.
    """


class NotOneIsland(PathwaysError):
    """Signals that one computation was to run on devices that no collective connects.

    Raised by ``prepare`` and ``device`` if the cluster's hosts lie in several islands and are not all CPU hosts. Use a
    slice of each island.
    """


class DeadlineExceeded(PathwaysError, TimeoutError):
    """Signals that a wait reached its timeout.

    Raised by every wait that takes a timeout. It cancels nothing: what was waited for may still complete.
    """


class InvalidSharding(PathwaysError, ValueError):
    """Signals that a tensor cannot be laid out on a mesh as requested.

    Raised where meshes, placements and partition specs are given, and where they are applied to a shape. The message
    names dimension, size, mesh axis and number of parts. Pad the dimension, shard another one, or replicate.
    """


class InvalidProgram(PathwaysError, ValueError):
    """Signals a program whose graph breaks a rule.

    Rules concern types that do not fit, a value defined twice or never, a cycle, or an unknown slice. Raised when a
    program is built or read from text, after every lowering pass, and by ``Program`` methods that cannot handle
    irregular functions. The message names the nodes and the user's lines.
    """


class PipelineError(PathwaysError, ValueError):
    """Signals a pipeline that cannot be made, or a step that it cannot take.

    Raised by ``pipeline`` and the methods of ``Pipeline``: an unknown schedule, or stages, microbatches, slices and
    batch that do not fit each other. The message has what was required, what was given, and the remedy.
    """


class ModelCannotBeCut(PipelineError):
    """Signals a model that is not a sequence of blocks, or that cannot be divided as requested.

    Raised by ``pipeline``, and by its first ``step`` for each kind of batch. The message names the module, and the line
    where it is known.
    """


class SliceUnavailable(PathwaysError):
    """Signals that the cluster cannot provide a slice as requested, or that a slice was released.

    Raised by ``Cluster.slice`` and ``VirtualSlice.move``, whose message has the request and what each island has and
    has free, and by calls that use a released slice or more torch devices than ``logical_devices``.
    """


class DifferentSlices(PathwaysError, ValueError):
    """Signals an operation with operands on two slices.

    Raised where it is called, or by ``backward`` if a gradient lies on another slice than its tensor. The message names
    the line, both tensors and both slices. Move one of them with ``tensor.to(slice.device)``.
    """


class CapturedTensor(PathwaysError, ValueError):
    """Signals a function or program that uses a tensor which is not one of its arguments.

    Raised by its first call, which traces it. Pass the tensor as an argument (a module's parameters with
    ``torch.func.functional_call``).
    """


class ImpureFunction(PathwaysError, ValueError):
    """Signals a function or program that does more than return a value, which its replays would not repeat.

    Raised by its first call, which traces it: an argument changed in place, or a traced value kept outside. Return what
    the caller needs.
    """


class UsedAfterDonation(PathwaysError, ValueError):
    """Signals the use of a future or a tensor that was donated to an earlier call (``donate=``).

    Raised by calls and by waits, and by a call that gets one future twice and donates it. For a future, the message
    names the call that took it: use that call's results instead.
    """


class WrongCluster(PathwaysError, ValueError):
    """Signals that a slice, function or future of one cluster is used with another.

    Raised by calls. For a future, fetch the value with ``result()`` and pass that.
    """


class UntrainedParameters(PathwaysError, ValueError):
    """Signals that an optimizer's first step found no gradients, and that no prepared module has its parameters.

    Raised by ``optimizer.step()`` of a prepared optimizer. It was built from the parameters of another model, such as
    one that was since copied or rebuilt. Build it from those of the model that is trained.
    """


class NonFinite(PathwaysError, ArithmeticError):
    """Signals that a watched tensor had a value that is NaN or infinite.

    Raised by ``optimizer.step()`` after ``watch``, some steps later, or by ``check()`` of its result.

    Attributes:
        step: the step it happened in, counted from 1.
        tensor: the first such tensor in the order of computation, such as ``"the gradient of 0.weight"``.
    """

    def __init__(self, message: str, step: int = 0, tensor: str = "") -> None:
        super().__init__(message)
        self.step = step
        self.tensor = tensor


class CheckpointError(PathwaysError):
    """Signals a checkpoint that cannot be written or read: no such file, no permission, a full disk, a truncated file.

    Raised by ``save``, ``Save.wait`` and ``load``. The message names file and host. The last good checkpoint is
    unchanged. So are the objects to load into, unless the message names those that could not be put back.
    """


class CheckpointMismatch(CheckpointError, ValueError):
    """Signals a checkpoint of another model: names are missing or left over, or shapes differ.

    Raised by ``load`` before anything is changed. The message lists every difference. ``strict=False`` skips names
    without a counterpart.
    """


class CacheWarning(UserWarning):
    """Warns that ``cache_dir`` cannot be used, so that computations are compiled again at the next start."""


class CheckpointWarning(UserWarning):
    """Warns that a checkpoint could not be written whose ``Save`` nobody waits for."""


class PipelineWarning(UserWarning):
    """Warns that a pipeline differs from eager PyTorch on the whole batch, and why.

    Also given for gradient clipping of what a pipeline trains, which has no effect.
    """
