"""The wire: generated stubs, and the codec between messages and protobuf."""
