"""Join or start Ray (``session``); what a trial may use (``capacity``); shared folders (``storage``).

Ray waits for ever where a trial asks for more than any node has, and for minutes where an address does not
answer; here both are a ClusterError within seconds. Importing this package does not import Ray.
"""

from foxhunt_ray.cluster.capacity import TrialResources, trial_resources
from foxhunt_ray.cluster.session import Cluster, connect, in_ray_job, prepare_environment
from foxhunt_ray.cluster.storage import check_storage

__all__ = [
    "Cluster",
    "TrialResources",
    "check_storage",
    "connect",
    "in_ray_job",
    "prepare_environment",
    "trial_resources",
]
