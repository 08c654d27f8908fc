"""The kinds of training.kubedl.io/v1alpha1, which KubeDL served."""
