"""The configurations of the templates, by themselves on one core.

See :class:`~tvm_rammer.backend.protocol.Tuner`.
"""

from tvm_rammer.backend.cpu.templates.select import alike, choices, likely, schedule_as
from tvm_rammer.backend.cpu.timing.time_choice import CompiledChoices, compile_choices

__all__ = ["alike", "choices", "compile", "likely", "together", "trial"]

together, compile, trial = schedule_as, compile_choices, CompiledChoices
