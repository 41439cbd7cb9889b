"""Only the comparison with MindSpore's compiler needs MindSpore."""

import importlib.util
import os

os.environ.setdefault("GLOG_v", "4")

collect_ignore = [] if importlib.util.find_spec("mindspore") else ["test_against_compiler.py"]
