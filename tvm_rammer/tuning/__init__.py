"""TVM's tuner choosing the rTask tiling of every operator.

A template lists its configurations; MetaSchedule searches the list with evolutionary search and an
XGBoost cost model, and keeps what was measured in a JSON database.

- ``task``: an operator to tune, as a workload of MetaSchedule
- ``space``: the list as a space of MetaSchedule, its mutator, and the features of a configuration
- ``worker``: what runs in MetaSchedule's worker processes: building and timing one configuration
- ``database``: records on disk, and which configurations a build takes by them
- ``session``: tuning operators; ``model``: those of a model
"""

from tvm_rammer.tuning.database import Database
from tvm_rammer.tuning.model import tune
from tvm_rammer.tuning.session import Progress

__all__ = ["Database", "Progress", "tune"]
