"""An exported graph without work that changes no answer: one precision, and the scaling of pixels inside the first layer."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Exact = NDArray[np.float64]

# what each operation with a constant v makes of a and b, where its input is a x + b
AFFINE: dict[str, Callable[[Exact, Exact, Exact], tuple[Exact, Exact]]] = {
    "Div": lambda a, b, v: (a / v, b / v),
    "Mul": lambda a, b, v: (a * v, b * v),
    "Sub": lambda a, b, v: (a, b - v),
    "Add": lambda a, b, v: (a, b + v),
}


def leaner(content: bytes, *, single: bool) -> bytes:
    """The same graph, up to rounding, in fewer operations; `single`: and in float32 wherever it has float64."""
    import onnx

    model = onnx.load_from_string(content)
    if single:
        _to_single_precision(model.graph)
    _fold_scaling(model.graph)
    _drop_unused(model.graph)
    return bytes(model.SerializeToString())


def _to_single_precision(graph: Any) -> None:
    """Half the bytes, and faster; a head may need what is lost."""
    from onnx import AttributeProto, TensorProto

    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.DOUBLE:
            _set(tensor, _value(tensor))
    for value in graph.value_info:
        if value.type.tensor_type.elem_type == TensorProto.DOUBLE:
            value.type.tensor_type.elem_type = TensorProto.FLOAT
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR and attribute.t.data_type == TensorProto.DOUBLE:
                _set(attribute.t, _value(attribute.t))
            elif node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.DOUBLE:
                attribute.i = TensorProto.FLOAT  # onnxruntime leaves out a cast that changes nothing


def _fold_scaling(graph: Any) -> None:
    """Make `W (a x + b)` of pixels x, with a factor and a term for each channel, `(W a) (x + b / a)`.

    One operation on all pixels instead of three or four. The sum stays outside, because the convolution pads with zeros.
    """
    from onnx import numpy_helper

    constants = {tensor.name: tensor for tensor in graph.initializer}
    cast = next((node for node in graph.node if node.op_type == "Cast"), None)
    a, b = np.ones((1, 1, 1)), np.zeros((1, 1, 1))
    chain: list[Any] = []
    node = None if cast is None else _only_user(graph, cast.output[0])
    while node is not None and node.op_type in AFFINE and node.input[1] in constants:
        value = _value(constants[node.input[1]])
        if value.size > 1 and value.shape[-3:] != (value.size, 1, 1):  # not one number a channel
            return
        a, b = AFFINE[node.op_type](a, b, value.reshape(-1, 1, 1))
        chain.append(node)
        node = _only_user(graph, node.output[0])
    if (
        cast is None
        or len(chain) < 2
        or node is None
        or node.op_type != "Conv"
        or node.input[1] not in constants
        or not np.all(a)
    ):
        return
    weights = constants[node.input[1]]
    grouped = any(attribute.name == "group" and attribute.i != 1 for attribute in node.attribute)
    if grouped or _only_user(graph, weights.name) is None:
        return
    _set(weights, _value(weights) * a)
    graph.initializer.append(numpy_helper.from_array((b / a).astype(np.float32), "pixel_shift"))
    last = chain.pop()
    last.op_type = "Add"
    last.input[:] = [cast.output[0], "pixel_shift"]
    for each in chain:
        graph.node.remove(each)


def _drop_unused(graph: Any) -> None:
    """Constants that no node takes any more, of which onnxruntime would warn."""
    used = {name for node in graph.node for name in node.input} | {output.name for output in graph.output}
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
        graph.initializer.remove(tensor)


def _only_user(graph: Any, name: str) -> Any:
    """The node that alone takes a value; None where several do, or it is an output."""
    users = [node for node in graph.node if name in node.input]
    return users[0] if len(users) == 1 and all(output.name != name for output in graph.output) else None


def _value(tensor: Any) -> Exact:
    from onnx import numpy_helper

    return np.asarray(numpy_helper.to_array(tensor), dtype=np.float64)


def _set(tensor: Any, value: Exact) -> None:
    """Put a value in a tensor's place, in single precision."""
    from onnx import numpy_helper

    tensor.CopyFrom(numpy_helper.from_array(value.astype(np.float32), tensor.name))
