from hypothesis import settings

# The first call for a formula compiles it, which may take longer than hypothesis allows an example on a busy machine.
settings.register_profile("compiling", deadline=None)
settings.load_profile("compiling")
