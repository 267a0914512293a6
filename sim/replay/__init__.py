"""The time machine: recorded runs verified, continued, predicted and looked at again."""
