"""Importers and generators: public file formats in, jobs out, one format a file.

`registry` lists them; a new one is a file with `FORMAT` and `read`, and one row there.
"""
