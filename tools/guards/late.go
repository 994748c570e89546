package main

// lateSafeguards cover what continues after its end was requested: a load that outlives its
// cell, and output that is not read.
func lateSafeguards() []safeguard {
	return []safeguard{
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
			old: "		parting.Go(func() { b.closeSession(ctx, c) })\n", new: "		b.closeSession(ctx, c)\n",
			pkg: "./cmd/chubbyctl", test: "TestBenchWithoutCell",
		},
		{
			name: "nobody waits for who reads the output after Ctrl-C", file: "cmd/chubbyctl/internal/term/outlet.go",
			old: "	if !within(written, lastBound) {\n", new: "	if <-written; false {\n",
			pkg: "./cmd/chubbyctl", test: "TestSignalWhileNobodyReadsOutput",
		},
		{
			name: "a signal reaches what writes the output", file: "cmd/chubbyctl/main.go",
			old: "			g.asked()\n", new: "			_ = g.asked\n",
			pkg: "./cmd/chubbyctl", test: "TestSignalWhileNobodyReadsOutput",
		},
	}
}
