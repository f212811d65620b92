"""Converts between torch's tensors and NumPy's arrays, without copies if possible."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

from convgrad.errors import invalid

DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


def check_numpy() -> None:
    """Raises ImportError if PyTorch was built for an older NumPy and can't make arrays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch prints the cause as a page of text
        try:
            torch.zeros(1).numpy()
        except RuntimeError as error:
            raise ImportError(
                f"convgrad.torch: PyTorch {torch.__version__} can't use NumPy {np.__version__} "
                f"({error}); install a PyTorch from 2.3 on, or 'numpy<2'") from None


def check_dtype(name: str, tensor: torch.Tensor) -> None:
    """Raises InvalidArgument naming the tensor if its dtype is unsupported, e.g. float64."""
    if tensor.dtype not in DTYPES:
        raise invalid("DTYPE_MISMATCH", f"operation.operands.{name}.dtype",
                      str(tensor.dtype).removeprefix("torch."),
                      "float32, bfloat16 or float16")


def to_array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Returns a view of the tensor's memory with its strides; a copy from other devices."""
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:  # unknown to NumPy
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def to_tensor(array: npt.NDArray[Any], like: torch.Tensor) -> torch.Tensor:
    """Returns a tensor over the array's memory, on the device of `like`."""
    if array.dtype == ml_dtypes.bfloat16:
        tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(array)
    return tensor.to(like.device)


def memory_format(tensor: torch.Tensor) -> torch.memory_format:
    """Returns the format of torch's output for this input: contiguous or channels-last."""
    for dims, last in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if tensor.dim() == dims and not tensor.is_contiguous() and (
                tensor.is_contiguous(memory_format=last)):
            return last
    return torch.contiguous_format
