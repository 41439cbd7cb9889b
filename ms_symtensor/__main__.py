"""`python -m ms_symtensor` is the command `symtensor`."""

import sys

from ms_symtensor.cli import main

sys.exit(main())
