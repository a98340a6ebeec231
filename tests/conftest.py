"""Settings of all tests."""

from hypothesis import settings

# The same examples on every run and every machine; a slow machine is no fault.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=200)
settings.load_profile("repeatable")
