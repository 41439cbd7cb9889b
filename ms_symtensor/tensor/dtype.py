"""Element types by MindSpore's names, and their sizes."""

from ms_symtensor.errors import InputError

SIZE_B = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex64": 8,
    "complex128": 16,
}  # fmt: skip


def size_B(dtype: str) -> int:
    """Bytes of one element of `dtype`; InputError if the name is unknown."""
    try:
        return SIZE_B[dtype]
    except KeyError:
        raise InputError(f"unknown element type {dtype!r}; known: {', '.join(SIZE_B)}") from None


def has_gradients(dtype: str) -> bool:
    """Whether tensors of `dtype`, floats or complex numbers, can have a gradient."""
    return "float" in dtype or "complex" in dtype
