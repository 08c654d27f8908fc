"""A custom framework: the class of the README of dlop, with type annotations."""

from collections.abc import Mapping

from dlop import ContainerProperties, DLJob, JobType, Replica, ReplicaType


class RingJob(DLJob):
    """A ring of peers that find each other through PEERS."""

    job_type = JobType(group="example.org", version="v1", kind="RingJob", short_names=("ring",))
    replica_types = (ReplicaType("Peer"),)
    container_properties = ContainerProperties(name="peer", port=7000)

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """Read by `peer.py`."""
        return {"RANK": str(replica.index), "PEERS": ",".join(self.addresses("Peer"))}
