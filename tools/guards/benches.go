package main

// benchGuards are those of a load that outlives what it is put on.
func benchGuards() []guard {
	return []guard{
		{
			name: "a bench gives up what a dead cell does not answer", file: "cmd/chubbyctl/measure.go",
			old: "		time.AfterFunc(bound, func() { finish(outOfTime{bound}) })\n", new: "		_ = bound\n",
			pkg: "./cmd/chubbyctl", test: "TestBenchWithoutCell",
		},
		{
			name: "a bench waits less for a dead cell after Ctrl-C", file: "cmd/chubbyctl/measure.go",
			old: "			bound = min(bound, closeBound)\n", new: "",
			pkg: "./cmd/chubbyctl", test: "TestBenchWithoutCell",
		},
		{
			name: "the clients of a bench take leave of a dead cell all at once", file: "cmd/chubbyctl/bench.go",
			old: "		parting.Go(func() { b.leave(ctx, c) })\n", new: "		b.leave(ctx, c)\n",
			pkg: "./cmd/chubbyctl", test: "TestBenchWithoutCell",
		},
	}
}
