"""Builds an ONNX graph node by node. A value in the graph is represented by its name."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

# Runtimes since 2022, such as onnxruntime 1.13, read these versions.
OPSET, IR_VERSION = 17, 8


class Graph:
    """An ONNX graph under construction. For the body of a loop, ``parent`` is the surrounding graph:
    the body can use its values, and the outermost graph holds the weights."""

    def __init__(self, parent: "Graph | None" = None) -> None:
        self._root: Graph = self if parent is None else parent._root
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._arrays: dict[Any, onnx.TensorProto] = {}
        self._count = 0

    def __call__(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node; returns its only output."""
        (output,) = self.several(operator, 1, *inputs, **attributes)
        return output

    def several(self, operator: str, count: int, *inputs: Any, **attributes: Any) -> list[str]:
        """Add a node; returns its outputs. An input is a value, a number or a list of numbers."""
        values = [x if isinstance(x, str) else self._held(np.asarray(x)) for x in inputs]
        outputs = [self._new_name(operator) for _ in range(count)]
        self._nodes.append(helper.make_node(operator, values, outputs, outputs[0], **attributes))
        return outputs

    def input(self, name: str, shape: Any = None, dtype: int = TensorProto.FLOAT) -> str:
        """Add an input; returns its name. In ``shape``, a name stands for any length."""
        self._inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def output(self, name: str, value: str, shape: Any = None) -> None:
        """Make a value an output with this name."""
        self._nodes.append(helper.make_node("Identity", [value], [name], name))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def weight(self, weight: torch.Tensor) -> str:
        """A parameter, or a rearrangement of one."""
        return self._held(weight.detach().float().cpu().contiguous().numpy(), "weight")

    def linear(self, x: str, weight: torch.Tensor, bias: torch.Tensor | None = None) -> str:
        """x W^T + b."""
        product = self("MatMul", x, self.weight(weight.t()))
        return product if bias is None else self("Add", product, self.weight(bias))

    def scan(
        self,
        sequence: str,
        state: Sequence[str],
        step: Callable[["Graph", Sequence[str], str], Sequence[str]],
    ) -> tuple[str, list[str]]:
        """A loop over the first axis of ``sequence``, (T, ...), starting from ``state``. ``step``:
        (graph of the body, state, entry) -> next state. Returns the first part of every state,
        (T, ...), and the last state."""
        body = Graph(self)
        before = [body.input(body._new_name("before")) for _ in state]
        after = step(body, before, body.input(body._new_name("entry")))
        for value in (*after, after[0]):
            body.output(body._new_name("after"), value)
        read, made = (*state, sequence), body._graph(body._new_name("step"))
        *last, outputs = self.several("Scan", len(read), *read, body=made, num_scan_inputs=1)
        return outputs, last

    def model(self, metadata: dict[str, str]) -> onnx.ModelProto:
        """The whole model."""
        about: Any = {"ir_version": IR_VERSION, "producer_name": "fairseq_doc"}
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(self._graph("language_model"), opset_imports=opsets, **about)
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model)
        return model

    def _graph(self, name: str) -> onnx.GraphProto:
        arrays = list(self._arrays.values())
        return helper.make_graph(self._nodes, name, self._inputs, self._outputs, arrays)

    def _new_name(self, stem: str) -> str:
        self._root._count += 1
        return f"{stem}_{self._root._count}"

    def _held(self, array: np.ndarray, stem: str = "constant") -> str:
        """The name of an array, float32 or int64. Equal arrays are stored once."""
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        held, key = self._root._arrays, (array.tobytes(), array.shape, array.dtype.str)
        if key not in held:
            held[key] = numpy_helper.from_array(array, self._new_name(stem))
        return held[key].name
