"""Askers: how much a job asks for now, and what it does with the containers that it holds."""
