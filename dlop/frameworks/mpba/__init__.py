"""The MXJob and TFJob of mpba.fbk.eu/v1, whose spec is a list of roles."""
