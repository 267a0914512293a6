"""What the roles say to each other and to their shells: messages, effects, facts, records."""
