"""Why a plan is what it is: what binds it, what its neighbours cost, how plans differ, and why nothing fits."""
