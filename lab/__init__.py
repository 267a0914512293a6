"""The lab: measures, studies, plots and reports."""
