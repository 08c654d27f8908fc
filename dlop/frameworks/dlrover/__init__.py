"""The kind of elastic.iml.github.io: ElasticJob, whose master is that of DLRover, and its ScalePlan."""
