"""The MXJob of fioravanzo.org/v1alpha1, compatible with the early mx-operator."""
