"""What depends on the kind of a device, a folder for each.

- ``cpu``: x86-64 and AArch64 processors, by LLVM
"""
