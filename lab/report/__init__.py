"""Runs as people read them: the HTML report, plots, Gantt charts, tables side by side."""
