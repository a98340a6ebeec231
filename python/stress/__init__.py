"""Runs under load for long.

- ``soak``: plans of random models on more workers than cores, with ``compiled_regions``: small
  models, planned in any way, run without Relax around them
- ``reload_stress``: threads run models, their file changes, and children fork meanwhile
"""
