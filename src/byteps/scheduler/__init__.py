"""The scheduler: who is in the job, where tensors live, when it is over."""
