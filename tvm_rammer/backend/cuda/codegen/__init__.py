"""From plans to kernels of resident blocks.

- ``block_text``: what a block does, in CUDA C; ``plan_table``: the plan as data for it
- ``region_kernels``: bodies, the dispatcher, the launches of every region
- ``host_and_device``: both compiled into one module, plans or single operators
- ``machine_code``: what libraries hold that are written where no GPU is
"""
