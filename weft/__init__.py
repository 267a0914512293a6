"""The shared words of Weft: ids, resources, jobs, messages and effects, one meaning each."""
