"""What a user's own run left behind: lines of a training log, and the folders of MindSpore's profiler, one per rank."""
