"""What matchers, planners and askers of every package share: presets, plug-ins, kernels."""
