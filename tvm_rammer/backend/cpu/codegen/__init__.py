"""From plans to machine code.

- ``region_modules``: the dispatcher; ``instruction_table``: the plan as data for it
- ``entry``, ``signature``, ``argument_text``: what a caller calls, and with what
- ``lowering``, ``shards``, ``shard_compiler``: rTask bodies, compiled side by side
- ``vector_math*``: elementary functions as vector code; ``scalar_calls``: loops of others
- ``local_buffers``: buffers of a loop on the stack
- ``marked_loops``: loops that stay, and what need not be copied onto itself;
  ``neighbour_products``: integers in one instruction
- ``llvm_text``: what TIR cannot express
- ``guard``, ``guard_text``: the check of the CPU and the workers of a thread
"""
