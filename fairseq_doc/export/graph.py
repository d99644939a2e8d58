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
        self._arrays: dict[Any, onnx.TensorProto] = {}
        self._count = 0

    def __call__(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node; returns its only output."""
        (output,) = self.several(operator, 1, *inputs, **attributes)
        return output

    def several(self, operator: str, count: int, *inputs: Any, **attributes: Any) -> list[str]:
        """Add a node; returns its outputs. An input is a value, a number or a list of numbers."""
        values = [x if isinstance(x, str) else self._held(np.asarray(x)) for x in inputs]
        outputs = [self.new_name(operator) for _ in range(count)]
        self._nodes.append(helper.make_node(operator, values, outputs, outputs[0], **attributes))
        return outputs

    def new_name(self, stem: str) -> str:
        self._root._count += 1
        return f"{stem}_{self._root._count}"

    def output(self, name: str, value: str) -> None:
        """Make a value an output with this name."""
        self._nodes.append(helper.make_node("Identity", [value], [name], name))

    def weight(self, weight: torch.Tensor) -> str:
        """A parameter, or a rearrangement of one."""
        return self._held(weight.detach().float().cpu().contiguous().numpy(), "weight")

    def linear(self, x: str, weight: torch.Tensor, bias: torch.Tensor | None = None) -> str:
        """x W^T + b."""
        product = self("MatMul", x, self.weight(weight.t()))
        return product if bias is None else self("Add", product, self.weight(bias))

    def _held(self, array: np.ndarray, stem: str = "constant") -> str:
        """The name of an array, float32 or int64. The file has equal arrays once."""
        array = array.astype(np.float32 if array.dtype.kind == "f" else np.int64)
        held, key = self._root._arrays, (array.tobytes(), array.shape, array.dtype.str)
        if key not in held:
            held[key] = numpy_helper.from_array(array, self.new_name(stem))
        return held[key].name

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
        before = [body.new_name("before") for _ in state]
        entry = body.new_name("entry")
        after = step(body, before, entry)
        results = [body.new_name("after") for _ in (*state, sequence)]
        for name, value in zip(results, [*after, after[0]], strict=True):
            body.output(name, value)
        values = [
            [helper.make_tensor_value_info(x, TensorProto.FLOAT, None) for x in names]
            for names in ((*before, entry), results)
        ]
        made = helper.make_graph(body._nodes, body.new_name("step"), *values)
        read = (*state, sequence)
        *last, outputs = self.several("Scan", len(read), *read, body=made, num_scan_inputs=1)
        return outputs, last

    def model(
        self,
        inputs: Sequence[onnx.ValueInfoProto],
        outputs: Sequence[onnx.ValueInfoProto],
        metadata: dict[str, str],
    ) -> onnx.ModelProto:
        """The whole model, with the outputs named by :meth:`output`."""
        arrays = list(self._arrays.values())
        graph = helper.make_graph(self._nodes, "language_model", inputs, outputs, arrays)
        about: Any = {"ir_version": IR_VERSION, "producer_name": "fairseq_doc"}
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], **about)
        helper.set_model_props(model, metadata)
        onnx.checker.check_model(model)
        return model
