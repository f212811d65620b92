"""Checks that PyTorch and NumPy can share arrays."""

import warnings

import numpy
import torch


def check() -> None:
    """Raises ImportError if PyTorch was built for an older NumPy and can't make arrays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch prints the cause as a page of text
        try:
            torch.zeros(1).numpy()
        except RuntimeError as error:
            raise ImportError(
                f"convgrad.torch: PyTorch {torch.__version__} can't use NumPy "
                f"{numpy.__version__} ({error}); install a PyTorch from 2.3 on, or "
                "'numpy<2'") from None
