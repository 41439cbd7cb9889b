"""Make the device target "Ascend" known to a MindSpore that was built without one: the CPU wheel lacks only the device."""

import ctypes
from pathlib import Path
from typing import Any

from ms_symtensor.errors import CompilerError

ASCEND = "Ascend"

# MsContext::RegisterInitFunc(const std::string &, void (*)(MsContext *)), with the old and the new ABI of std::string
_OLD_ABI_SYMBOL = "_ZN9mindspore9MsContext16RegisterInitFuncERKSsPFvPS0_E"
_NEW_ABI_SYMBOL = (
    "_ZN9mindspore9MsContext16RegisterInitFuncERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEPFvPS0_E"
)

_kept_alive: list[object] = []  # memory that MindSpore may still point into
_registered = False


def is_registered() -> bool:
    """Whether `register_ascend` was called in this process."""
    return _registered


def register_ascend() -> None:
    """Make the target known to MindSpore's core library, once per process; CompilerError if this build has no way to."""
    global _registered
    if _registered:
        return
    import mindspore
    from mindspore import context
    from mindspore._c_expression import MSContext, ms_ctx_param

    library = Path(mindspore.__file__).parent / "lib" / "libmindspore_core.so"
    try:
        core = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise CompilerError(
            f"MindSpore's core library does not load ({first_line(error)}): reinstall mindspore"
        ) from error
    if hasattr(core, _OLD_ABI_SYMBOL):
        register, target = core[_OLD_ABI_SYMBOL], _old_abi_string(ASCEND)
    elif hasattr(core, _NEW_ABI_SYMBOL):
        register, target = core[_NEW_ABI_SYMBOL], _new_abi_string(ASCEND)
    else:
        raise CompilerError(
            f"MindSpore {mindspore.__version__} cannot compile for Ascend on this machine ({library.name}"
            " exports no RegisterInitFunc): use 2.7 to 2.10, or a machine with CANN; planning works without"
        )
    settings = _context_settings()
    register.restype, register.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p]
    # The initialiser has nothing to do, but MindSpore requires one: a library function without effects serves.
    nothing = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
    register(target, nothing)
    # Registering makes a new context inside MindSpore, with default settings: hand it to Python and restore them.
    handle = MSContext.get_instance()
    context._context()._context_handle = handle
    for name, value in settings.items():
        if name != "device_target" and _context_settings().get(name) != value:
            handle.set_param(getattr(ms_ctx_param, name), value)
    _registered = True


def _context_settings() -> dict[str, Any]:
    from mindspore._c_expression import MSContext, ms_ctx_param

    settings = {}
    for name, parameter in ms_ctx_param.__members__.items():
        try:
            settings[name] = MSContext.get_instance().get_param(parameter)
        except (RuntimeError, ValueError, TypeError):
            continue  # of a type that Python cannot hold
    return settings


def _old_abi_string(text: str) -> int:
    """Address of a copy-on-write std::string: a pointer to characters that follow length, capacity, reference count."""
    data = text.encode()
    header = 3 * ctypes.sizeof(ctypes.c_size_t)
    block = ctypes.create_string_buffer(header + len(data) + 1)
    ctypes.memmove(block, (ctypes.c_size_t * 2)(len(data), len(data)), 16)
    ctypes.memmove(ctypes.addressof(block) + 16, (ctypes.c_int * 1)(-1), 4)  # -1: not to be shared, so it is copied
    ctypes.memmove(ctypes.addressof(block) + header, data, len(data))
    pointer = ctypes.c_void_p(ctypes.addressof(block) + header)
    _kept_alive.extend([block, pointer])
    return ctypes.addressof(pointer)


def _new_abi_string(text: str) -> int:
    """Address of a C++11 std::string: pointer, length, and 16 bytes that hold a short text in place."""
    data = text.encode()
    assert len(data) < 16
    block = ctypes.create_string_buffer(32)
    ctypes.memmove(block, (ctypes.c_size_t * 2)(ctypes.addressof(block) + 16, len(data)), 16)
    ctypes.memmove(ctypes.addressof(block) + 16, data, len(data))
    _kept_alive.append(block)
    return ctypes.addressof(block)


def first_line(error: BaseException) -> str:
    """The first line of what `error` says, its type if it says nothing."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
