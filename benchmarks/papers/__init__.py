"""The claims of the papers, judged: studies as data, runs that go on where they stopped, verdicts by a stated rule."""
