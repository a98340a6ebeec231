"""Wrong models, plans, libraries, caches and commands, and what must not become of them.

- ``kinds`` of cases, made of small models by ``edits``, judged by ``finds``, ``plans`` and a
  ``peer``
- ``networks`` of ``random_models``, ``random_graphs`` and ``random_programs``, in the shapes of
  real ones; ``mutants``: wrong plans
- ``layers``, which ``random_layers`` makes in sizes that nobody would choose
- ``worker``: what one process does
"""
