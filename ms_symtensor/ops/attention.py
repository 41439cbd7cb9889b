"""Fused attention."""

import math
from collections.abc import Mapping

from ms_symtensor.errors import InputError
from ms_symtensor.ops.signature import OpView, Signature, Unit, named

_LAYOUTS = {0: "BSH", 1: "BNSD", 2: "SBH", 3: "BSND", 4: "TND"}


RULES: dict = {}
