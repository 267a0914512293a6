"""What matchers, planners and askers share, whoever wrote them.

`presets` names the schedulers of the papers as combinations of the three; `plugins` finds those of
other packages; `parameters` reads their options; `compiled` compiles their kernels with numba, and
`first_compile` tells when it has to.
"""
