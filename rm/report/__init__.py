"""What the manager tells readers: reports, and why a task is still pending."""
