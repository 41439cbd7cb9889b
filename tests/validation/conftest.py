from hypothesis import settings

settings.register_profile("arrays", deadline=None)
settings.load_profile("arrays")
