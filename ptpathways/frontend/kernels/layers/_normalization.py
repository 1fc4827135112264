"""Normalisation, all of which is one kernel of PyTorch/XLA's: that of batches, in training.

It takes the variance for the difference of the mean of the squares and the square of the mean, which leaves few digits,
or none, where the mean is large beside the variance. XLA's operation rounds ``eps`` to float32: float64 is done here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptpathways.frontend.kernels.arithmetic import _precision
from ptpathways.frontend.kernels.calls import _refusals
from ptpathways.frontend.kernels.memory import _views
from ptpathways.frontend.xla._plain import Plain, hands_on

if TYPE_CHECKING:
    import torch


@hands_on(Plain.WIDE | Plain.NO_DOUBLE | Plain.SAME_TYPES | Plain.NORMALIZATION)
def batch_norm(
    kernel: Callable[..., Any],
    values: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """The values are shifted by their mean before the kernel sees them, which changes no variance.

    PyTorch/XLA's running variance takes in the variance of the batch; torch's the estimate of the variance of all,
    which is larger by ``n / (n - 1)`` for ``n`` values of a channel. It decides what evaluation gives.

    Raises:
        RuntimeError: the parameters are of another type.
    """
    parameters = (weight, bias, running_mean, running_var)
    _check_types("batch_norm or instance_norm", values, *parameters)
    if any(item is not None and item.dtype != values.dtype for item in parameters):
        result, *saved = batch_norm(kernel, values.float(), *parameters, training, momentum, eps)
        return result.to(values.dtype), *saved
    if _is_double(values):
        return _of_doubles(values, parameters, training, momentum, eps)
    if not training:
        return kernel(values, weight, bias, running_mean, running_var, training, momentum, eps)
    _, others, count = _channels(values)
    shift = None
    if count > 1 and not _precision.is_short(values.dtype):  # of 16 bits the kernel has more digits than the values
        shift = values.mean(others, keepdim=True)
        values = values - shift
    kept = None if running_var is None else running_var * (1 - momentum)
    result, mean, deviation = kernel(values, weight, bias, running_mean, running_var, training, momentum, eps)
    if shift is not None:
        shift = shift.reshape(-1)
        mean = mean + shift
        if running_mean is not None:
            running_mean.add_(shift, alpha=momentum)
    if running_var is not None and kept is not None:
        running_var.copy_(kept + (running_var - kept) * _of_all(count))
    return result, mean, deviation


def _of_all(count: int) -> float:
    """The variance of all by that of ``count`` values. Torch divides by n - 1 whatever n is: of a single value it gives
    NaN, and nn.BatchNorm refuses that before."""
    return count / (count - 1) if count > 1 else float("nan")


def _is_double(values: torch.Tensor) -> bool:
    import torch

    return values.dtype == torch.float64 and values.numel() > 0


def _of_doubles(
    values: torch.Tensor, parameters: Sequence[torch.Tensor | None], training: bool, momentum: float, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As torch computes it; the running statistics are written."""
    weight, bias, running_mean, running_var = parameters
    shape, others, count = _channels(values)
    if training:
        mean, variance = values.mean(others), None
    elif running_mean is not None and running_var is not None:
        mean, variance = running_mean, running_var
    else:
        raise RuntimeError("batch_norm in evaluation needs running_mean and running_var, got None")
    centred = values - mean.reshape(shape)
    if variance is None:
        variance = centred.square().mean(others)
        if running_mean is not None:
            running_mean.copy_(running_mean * (1 - momentum) + mean * momentum)
        if running_var is not None:
            running_var.copy_(running_var * (1 - momentum) + variance * (_of_all(count) * momentum))
    scale = (variance + eps).rsqrt()
    result = centred * scale.reshape(shape)
    if weight is not None:
        result = result * weight.reshape(shape)
    if bias is not None:
        result = result + bias.reshape(shape)
    return (result, mean, scale) if training else (result, values.new_empty(0), values.new_empty(0))


def _channels(values: torch.Tensor) -> tuple[list[int], list[int], int]:
    """What broadcasts a vector over them, the other dimensions, and how many values each has."""
    dims = range(values.dim())
    shape = [-1 if dim == 1 else 1 for dim in dims]
    return shape, [dim for dim in dims if dim != 1], values.numel() // max(values.shape[1], 1)


@hands_on(Plain.NO_STATISTICS)
def with_statistics(kernel: Callable[..., Any], *arguments: Any) -> Any:
    """Of running statistics that are views, or have some: torch's functionalization is not told that they are written,
    and keeps for others what there was."""
    result = kernel(*arguments)
    *statistics, training = arguments[3:6]
    if training:
        _views.were_written(item for item in statistics if item is not None)
    return result


def batch_norm_of_batch(
    kernel: Callable[..., Any],
    values: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Without running statistics."""

    def plain(values: torch.Tensor, weight: Any, bias: Any, mean: None, variance: None, *rest: Any) -> Any:
        return kernel(values, weight, bias, *rest)

    return batch_norm(plain, values, weight, bias, None, None, training, momentum, eps)


def batch_norm_backward(
    kernel: Callable[..., Any],
    gradient: torch.Tensor,
    values: torch.Tensor,
    weight: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    save_mean: torch.Tensor | None,
    save_invstd: torch.Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Any:
    """The gradients of values, weight and bias. Statistics that are not the batch's own are constants. In float32."""
    if _precision.is_short(values.dtype):
        wide_values = values.float()
        if train:  # those that were kept are rounded to 16 bits
            save_mean, save_invstd = _statistics(wide_values, eps)
        wide = batch_norm_backward(
            kernel,
            gradient.float(),
            wide_values,
            _wide(weight),
            _wide(running_mean),
            _wide(running_var),
            _wide(save_mean),
            _wide(save_invstd),
            train,
            eps,
            output_mask,
        )
        of_parameters = (weight if weight is not None else values).dtype
        dtypes = (values.dtype, of_parameters, of_parameters)
        return tuple(item if item is None else item.to(dtype) for item, dtype in zip(wide, dtypes, strict=True))
    if train and _is_double(values) and save_mean is not None and save_invstd is not None:
        return _backward_of_doubles(gradient, values, weight, save_mean, save_invstd, output_mask)
    if train or running_mean is None or running_var is None:
        statistics = [weight, running_mean, running_var, save_mean, save_invstd]
        return kernel(gradient, values, *statistics, train, eps, output_mask)
    shape, others, _ = _channels(values)
    scale = (running_var + eps).rsqrt()
    factor = scale if weight is None else scale * weight
    of_values = (gradient * factor.reshape(shape)).to(values.dtype)
    centred = (values - running_mean.reshape(shape)) * scale.reshape(shape)
    of_weight = (gradient * centred).sum(others)
    of_bias = gradient.sum(others)
    return of_values, of_weight if output_mask[1] else None, of_bias if output_mask[2] else None


def _backward_of_doubles(
    gradient: torch.Tensor,
    values: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    scale: torch.Tensor,
    output_mask: Sequence[bool],
) -> Any:
    """Of a batch's own statistics."""
    shape, others, count = _channels(values)
    normalized = (values - mean.reshape(shape)) * scale.reshape(shape)
    of_weight, of_bias = (gradient * normalized).sum(others), gradient.sum(others)
    factor = scale if weight is None else scale * weight
    apart = gradient - (of_bias / count).reshape(shape) - normalized * (of_weight / count).reshape(shape)
    of_values = apart * factor.reshape(shape)
    return of_values, of_weight if output_mask[1] else None, of_bias if output_mask[2] else None


def _statistics(values: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean and the inverse standard deviation of each channel."""
    others = [dim for dim in range(values.dim()) if dim != 1]
    mean = values.mean(others, keepdim=True)
    variance = (values - mean).square().mean(others)
    return mean.reshape(-1), (variance + eps).rsqrt()


def _wide(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return tensor if tensor is None else tensor.float()


def _check_types(name: str, values: torch.Tensor, *parameters: torch.Tensor | None) -> None:
    """Parameters are of the values' type, or float32 beside values of 16 bits.

    Raises:
        RuntimeError: they are not.
    """
    import torch

    given = [item for item in parameters if item is not None]
    if not (_precision.is_short(values.dtype) and all(item.dtype == torch.float32 for item in given)):
        _refusals.one_type(name, values, *given)


@hands_on(Plain.WIDE | Plain.SAME_TYPES | Plain.UP_TO_DATE)
def group_norm(
    kernel: Callable[..., Any], values: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, *rest: Any
) -> Any:
    """Of 16-bit floats in float32."""
    _check_types("layer_norm or group_norm", values, weight, bias)
    return _precision.in_float32(kernel, values, weight, bias, *rest)


@hands_on(Plain.NONEMPTY | Plain.WIDE | Plain.SAME_TYPES | Plain.UP_TO_DATE)
def layer_norm(
    kernel: Callable[..., Any],
    values: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> Any:
    """Of 16-bit floats in float32. Of an empty tensor the kernel's results have no gradient."""
    import torch

    _check_types("layer_norm or group_norm", values, weight, bias)
    if values.numel() > 0:
        if not _precision.is_short(values.dtype):
            return kernel(values, normalized_shape, weight, bias, eps)
        result, *statistics = kernel(values.float(), normalized_shape, _wide(weight), _wide(bias), eps)
        # Beside parameters of float32 the statistics are of float32, too.
        dtype = next((item.dtype for item in (weight, bias) if item is not None), values.dtype)
        return result.to(values.dtype), *(item.to(dtype) for item in statistics)
    result = values if weight is None else values * weight
    result = result * 1 if bias is None else result + bias
    shape = [*values.shape[: values.dim() - len(normalized_shape)], *[1] * len(normalized_shape)]
    mean = values.sum(list(range(len(shape) - len(normalized_shape), len(shape))), keepdim=True)
    return result, mean, mean * torch.nan


def batch_norm_out(*arguments: Any, **named: Any) -> Any:
    """torch's functionalisation writes its results into the wrong tensors."""
    raise NotImplementedError(
        "_native_batch_norm_legit of a device's tensors needs results of its own, got out=; call it without out= and "
        "copy the results"
    )


REPLACED_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {"_native_batch_norm_legit.out": batch_norm_out}
WRAPPED_ABOVE_AUTOGRAD: dict[str, Callable[..., Any]] = {
    "native_group_norm": group_norm,
    "native_layer_norm": layer_norm,
    "native_batch_norm": with_statistics,
}
WRAPPED: dict[str, Callable[..., Any]] = {
    "_native_batch_norm_legit": batch_norm,  # by compiled graphs
    "_native_batch_norm_legit.no_stats": batch_norm_of_batch,
    "native_batch_norm": batch_norm,
    "native_batch_norm_backward": batch_norm_backward,
}
