"""A class per situation that a caller can handle. The message says what was required, what was got, what to do."""

from __future__ import annotations


class PathwaysError(RuntimeError):
    """Base of all errors of this package.

    A RuntimeError, because that is what PyTorch raises: a value asked for through PyTorch (``tensor.item()``) whose
    computation failed raises a plain RuntimeError with the same message as the class below would have.

    Raised itself only for failures that no caller can handle better than by reporting them: a broken promise between
    our own parts. Please report it with the message.
    """


class NotInitialized(PathwaysError):
    """Something needs a cluster and there is none.

    Raised by everything but ``init`` before ``init`` was called or after ``shutdown``. Call ``init`` first.
    """


class AlreadyInitialized(PathwaysError):
    """``init`` was called a second time in this process, for a cluster that it cannot have.

    Raised by ``init``. PyTorch/XLA starts its runtime once per process and keeps its number of devices. The same
    ``init`` again returns the running cluster; for another one with as many devices call ``shutdown`` first; for one
    with other devices start another process.
    """


class RuntimeAlreadyStarted(PathwaysError):
    """PyTorch/XLA had started its own runtime before ``init`` could give it ours.

    Raised by ``init``, and by ``prepare`` or ``device`` when the process already uses its devices the other way (one
    by one, or as one mesh). Call ``init`` before the first tensor is put on an XLA device.
    """


class InvalidOption(PathwaysError, ValueError):
    """An argument of ``init``, or an environment variable that stands for one, has a value that cannot be used.

    Raised by ``Options``. The message names the option, the value and the values that are allowed.
    """


class ConnectionFailed(PathwaysError):
    """The controller cannot be reached, or the connection to it ended.

    Raised by ``init``, and by waits when the controller has gone. Check the address and that the controller runs.
    """


class VersionMismatch(PathwaysError):
    """Two sides that must be of one version are not: client and controller, worker and controller, Python and C++.

    Raised by ``init`` and by a worker that joins. Install the same version on every host; after an upgrade in a
    source checkout, build the extension again.
    """


class PluginNotFound(PathwaysError):
    """The PJRT plugin that a worker's platform needs is not installed, or is not where the option says.

    Raised when workers start. Install the package that the message names, or give the plugin's path.
    """


class HostLost(PathwaysError):
    """A host, or the worker process on it, ended or stopped answering while something depended on it.

    Raised by waits for values that lived on that host or were computed there, and by ``init`` when a worker dies
    while starting. Restart from a checkpoint; the message has the host's name and the reason.
    """


class OutOfDeviceMemory(PathwaysError):
    """A computation or a buffer needs more device memory than there can ever be free for it.

    Raised by waits for its result. Use a smaller batch, shard over more devices, or recompute activations; the
    message has the sizes.
    """


class InputPipelineFailed(PathwaysError):
    """A dataset's code raised in an input pipeline on a worker's host, or its process ended.

    Raised by loops over ``data.remote``, and by reads of values that were computed from the batch. The message names
    the host and the batch and has the original traceback.
    """


class CompileFailed(PathwaysError):
    """The devices' compiler refused a computation.

    Raised by waits for its results. The message has the compiler's reason and the line of the user's program.
    """


class TooManyRecompiles(PathwaysError):
    """More computations were compiled after warm-up than ``recompile_limit``.

    Raised where a loop submits a step, with ``pw.init(recompiles="raise")``. The message has the last one's cause;
    ``recompiles`` lists all.
    """


class CaptureMismatch(PathwaysError):
    """An audit of a captured step found that its replays did something else than the function does.

    Raised by a call of the step; what its replays computed since the last audit may be wrong. The message says in what
    the two differ. Leave the step uncaptured, or make what it depends on an argument.
    """


class ConcurrentUse(PathwaysError):
    """Two threads compute on one device at the same time, which PyTorch/XLA cannot do.

    Raised where the second one begins, before it does harm. Give each thread a slice of its own, or let them take
    turns.
    """


class NotOneIsland(PathwaysError):
    """One computation was asked to run on devices that no collective connects.

    Raised by ``prepare`` and ``device`` when the cluster's devices lie in several islands and are not all CPUs. Use a
    slice of each island.
    """


class DeadlineExceeded(PathwaysError, TimeoutError):
    """A wait reached its timeout.

    Raised by every wait that takes a timeout. Nothing is cancelled: what was waited for may still complete.
    """


class InvalidSharding(PathwaysError, ValueError):
    """A tensor cannot lie on a mesh the way it was asked to.

    Raised where meshes, placements and partition specs are given, and when a shape meets them. The message names
    dimension, size, mesh axis and parts: pad the dimension, shard another one, or replicate.
    """


class InvalidProgram(PathwaysError, ValueError):
    """A program's graph breaks a rule: types that do not fit, a value defined twice or never, a cycle, no such slice.

    Raised when a program is built or read from text, and after every lowering pass. The message names the nodes with
    the user's lines.
    """


class PipelineError(PathwaysError, ValueError):
    """A pipeline cannot be made, or cannot take a step, as it was asked for.

    Raised by ``pipeline`` and its ``step``: an unknown schedule, stages or microbatches that do not fit each other, the
    slices or the batch. The message says what was required, what was got, and what to do.
    """


class ModelCannotBeCut(PipelineError):
    """A model is no sequence of blocks, or cannot be divided where it was asked to be.

    Raised by ``pipeline``, and by its first ``step``. The message names the module, and the line where it is known.
    """


class SliceUnavailable(PathwaysError):
    """The cluster cannot give a slice as it was asked for.

    Raised by ``Cluster.slice``. The message says what was asked, and what each island has and has free.
    """


class DifferentSlices(PathwaysError, ValueError):
    """An operation has operands on two slices.

    Raised where it is called, or by ``backward`` where a gradient lies on another slice than its tensor. The message
    names the line, both tensors and both slices. Move one with ``tensor.to(slice.device)``.
    """


class CapturedTensor(PathwaysError, ValueError):
    """A function or program uses a tensor that is not one of its arguments.

    Raised when it is traced, by its first call. What is compiled knows only its arguments: pass the tensor as one (a
    module's parameters with ``torch.func.functional_call``).
    """


class ImpureFunction(PathwaysError, ValueError):
    """A traced function or program does something besides returning a value: it ran once, and would not do it again.

    Raised when it is traced, by its first call: an argument changed in place, a traced value kept outside. Return what
    the caller needs.
    """


class UsedAfterDonation(PathwaysError, ValueError):
    """A future or a tensor is used that was given up by an earlier call (``donate=``).

    Raised by calls and by waits. Of a future the message names the call that took it. Use that call's results instead.
    """


class WrongCluster(PathwaysError, ValueError):
    """A slice, function or future of one cluster is used with another.

    Raised by calls. Fetch the value with ``result()`` and pass that.
    """


class UntrainedParameters(PathwaysError, ValueError):
    """An optimizer's first step found no gradient in any of its parameters, which no prepared module has.

    Raised by ``optimizer.step()`` of a prepared optimizer. It was built from the parameters of another model, such as
    the one that was copied or rebuilt since. Build it from those of the model that is trained.
    """


class NonFinite(PathwaysError, ArithmeticError):
    """A watched tensor had a value that is NaN or infinite.

    Raised by ``optimizer.step()`` after ``watch``, some steps later. ``step`` is the step it happened in, counted from
    1, and ``tensor`` the first such tensor.
    """

    def __init__(self, message: str, step: int = 0, tensor: str = "") -> None:
        super().__init__(message)
        self.step = step
        self.tensor = tensor


class CheckpointError(PathwaysError):
    """A checkpoint cannot be written or read: no such file, no permission, a full disk, a file that was cut off.

    Raised by ``load``, and by the wait for a ``save``. The message names file and host. Nothing was changed: neither
    the tensors that were to be loaded nor the last good checkpoint.
    """


class CheckpointMismatch(CheckpointError, ValueError):
    """A checkpoint is of another model: names are missing or left over, or shapes differ.

    Raised by ``load`` before anything is changed. The message lists them. ``strict=False`` leaves out what has no
    counterpart.
    """


class CacheWarning(UserWarning):
    """The folder for compiled programs cannot be used: they are compiled again at the next start."""


class CheckpointWarning(UserWarning):
    """A checkpoint that nobody waits for could not be written."""


class PipelineWarning(UserWarning):
    """A pipeline computes something else than eager PyTorch would on the whole batch. The message says what and why."""
