"""`bookkeeper spark`: pipelines over the cluster on Spark, one file each."""
