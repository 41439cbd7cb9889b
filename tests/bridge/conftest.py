"""The bridge's tests need MindSpore; its warnings are silenced before anything imports it."""

import importlib.util
import os

os.environ.setdefault("GLOG_v", "3")

collect_ignore_glob = [] if importlib.util.find_spec("mindspore") else ["test_*.py"]
