"""What tests are built with: builders, rigs, live clusters. Not part of the product."""
