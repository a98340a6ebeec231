"""The corpus: trained models of packages that people install, and the architectures they name.

- ``entries``: what a model of it is; ``trained`` with ``input_makers``, ``architectures`` with
  ``library_networks``, ``detection_networks``, ``image_networks`` and ``sequence_networks``: the
  two tables
- ``fetch``, ``export``: a model's files
- ``checking`` by ``stages`` in processes of their own, ``difference``, ``racing``: what is found
"""
