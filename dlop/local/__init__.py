"""A whole cluster on this machine, for one job or for an afternoon: what `dlop local` is made of."""
