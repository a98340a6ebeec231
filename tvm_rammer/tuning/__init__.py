"""TVM's tuner choosing the rTask tiling of every operator.

A template lists its configurations; MetaSchedule searches the list with evolutionary search and an
XGBoost cost model, and keeps what was measured in a JSON database.

- ``task``: an operator to tune, as a workload of MetaSchedule
- ``space``: the list as a space of MetaSchedule, its mutator, and the features of a configuration
- ``sketch_space``: MetaSchedule's own rules, as they make rTasks of any operator;
  ``sketch_choice``: what they made, as a choice; ``search``: the search of either space
- ``answers``: what an operator must compute
- ``worker``: what runs in MetaSchedule's worker processes: building, checking and timing choices
- ``bench``: MetaSchedule's builder and runner over it; ``tracker``: a runner on other machines
- ``fronts``: which choices of an operator a build takes, also by what their data take to move
  (``moved_data``); ``race_network``: which of them pay in their network, of which ``networks``
  keeps the record
- ``database``: records on disk; ``folder``: one writer at a time; ``journal``: what it tells;
  ``status``: how far it is; ``collect``: merging, filtering, exporting
- ``budget``: which operator is tuned next, by its share of the plan (``shares``) and by what the
  machine allows (``least_seconds``)
- ``session``: tuning operators; ``model``: those of a model
- ``meta_schedule_records``: databases of MetaSchedule itself, for back ends that take schedules
"""

from tvm_rammer.tuning.database import Database
from tvm_rammer.tuning.journal import Progress
from tvm_rammer.tuning.model import tune
from tvm_rammer.tuning.tracker import Tracker

__all__ = ["Database", "Progress", "Tracker", "tune"]
