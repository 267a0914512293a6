"""What is scheduled and on what: ids, resources, jobs, DAGs, clusters, plans."""
