"""Controllers: informers fill caches, the planner turns a snapshot into a plan, and the plan is applied to the API server."""
