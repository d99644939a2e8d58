"""The device of the tests of ops, modules, models and criterions: $FAIRSEQ_DOC_DEVICE, such as
cuda; without it the CPU, and nothing here does anything.

What a test makes is put there, drawn on the CPU, so that every device has the same numbers. What the
package makes is where the package makes it, so that a device that it forgets is an error.
"""

import os
import sys
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode

DEVICE = torch.device(os.environ.get("FAIRSEQ_DOC_DEVICE", "cpu"))
ON_CPU = DEVICE.type == "cpu"
FOLDERS = ("ops", "modules", "models", "criterions")
TESTS = str(Path(__file__).parent)
MAKERS = {
    torch.arange,
    torch.empty,
    torch.eye,
    torch.full,
    torch.linspace,
    torch.ones,
    torch.rand,
    torch.randint,
    torch.randn,
    torch.tensor,
    torch.zeros,
}


class OnDevice(TorchFunctionMode):
    """Puts tensors that the tests' own code makes on the device, unless it names one."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        made = function(*args, **kwargs)
        if function not in MAKERS or kwargs.get("device") is not None:
            return made
        if not sys._getframe(1).f_code.co_filename.startswith(TESTS):
            return made
        return made.detach().to(DEVICE).requires_grad_(made.requires_grad)


def on_device(module):
    """A module that a test has made, on the device; on a CPU as it is."""
    return module if ON_CPU else module.to(DEVICE)


def of_rounding(*values):
    """The least tolerance: another device sums in another order, some in no fixed one."""
    if ON_CPU:
        return 0.0
    if isinstance(values[0], dict):
        values = [list(value.values()) for value in values]
    errors = [0.0]
    for value in values:
        if isinstance(value, list | tuple):
            errors += [of_rounding(part) for part in value]
        elif isinstance(value, torch.Tensor) and value.is_floating_point():
            errors.append(16 * torch.finfo(value.dtype).eps)
    return max(errors)
