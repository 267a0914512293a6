"""What a person is told, once in a process, when kernels are compiled: `weft.policies.compiled`."""

TEXT = "compiling kernels that were not needed before, kept for the next time: up to a minute"
