"""The search over meetings: every two features in a small cluster, judged from outside."""
