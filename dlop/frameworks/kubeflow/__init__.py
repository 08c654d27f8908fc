"""The kinds of kubeflow.org/v1, as Kubeflow's training operator had them: one module each, and what they share in `base`."""
