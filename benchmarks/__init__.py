"""nearfar and its peers on one machine, in one run."""
