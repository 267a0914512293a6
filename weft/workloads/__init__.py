"""Importers and generators: public file formats in, jobs out, one format a file."""
