"""The Gymnasium environment, the training of a matcher in it, and the matcher learned."""
