"""What a person is told, once in a process, when kernels are compiled: `weft.policies.compiled`."""

TEXT = "compiling the kernels, once for this installation: a minute or more"
