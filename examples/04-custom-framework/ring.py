"""A framework of its own: a ring of peers that find each other through PEERS."""

from collections.abc import Mapping

from dlop import ContainerProperties, DLJob, JobType, Replica, ReplicaType


class RingJob(DLJob):
    """A ring of peers. Each knows its rank, all addresses, and its right-hand neighbour."""

    job_type = JobType(group="example.org", version="v1", kind="RingJob", short_names=("ring",))
    replica_types = (ReplicaType("Peer", minimum=1, required=True),)
    container_properties = ContainerProperties(name="peer", port=7000, port_name="ring-port")

    def get_environment_variables(self, replica: Replica) -> Mapping[str, str]:
        """What a peer reads at its start."""
        peers = self.addresses("Peer")
        return {"RANK": str(replica.index), "PEERS": ",".join(peers), "NEXT": peers[(replica.index + 1) % len(peers)]}
