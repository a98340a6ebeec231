"""What tests and benchmarks are made of: models, random graphs and programs, mutants."""

from tvm_rammer.testing.mutants import MUTATIONS
from tvm_rammer.testing.random_graphs import SHAPES, random_graph
from tvm_rammer.testing.random_programs import random_program

__all__ = ["MUTATIONS", "SHAPES", "random_graph", "random_program"]
