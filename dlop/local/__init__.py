"""`dlop local`: an embedded cluster and the operator in one process, for one session on this machine."""
