"""How long an example of a property takes is the machine's business, not the test's."""

from hypothesis import HealthCheck, settings

settings.register_profile("any_machine", deadline=None, suppress_health_check=(HealthCheck.too_slow,))
settings.load_profile("any_machine")
