package main

// counterSafeguards cover numbers that programs add to, and sessions that are given up.
func counterSafeguards() []safeguard {
	const counter = "client/recipe/counter.go"
	const keep = "client/keep.go"
	return []safeguard{
		{
			name: "an addition is made once, by its mark", file: counter,
			old: "t := c.Txn().If(k.mark, client.IfGeneration(k.markAt)) //", new: "t := c.Txn() //",
			pkg: "./client/recipe", test: "TestCounterLostAnswers",
		},
		{
			name: "an addition is to the number that there is", file: counter,
			old: ", 10), client.IfGeneration(k.valueAt)).Put(", new: ", 10)).Put(",
			pkg: "./client/recipe", test: "TestCounter$",
		},
		{
			name: "what came of an addition is what its mark says", file: counter,
			old: "k.record(c, 0, true), client.IfGeneration(k.markAt)).Commit(", new: "k.record(c, 0, true)).Commit(",
			pkg: "./client/recipe", test: "TestCounterLostAnswers",
		},
		{
			name: "of a mark that others have removed nothing is claimed", file: counter,
			old: "		if !k.unknown {\n", new: "		if true {\n",
			pkg: "./client/recipe", test: "TestCounterWithoutItsMark",
		},
		{
			name: "marks of sessions that have ended are removed", file: counter,
			old: "		k.sweep(ctx, c, name)\n", new: "",
			pkg: "./client/recipe", test: "TestCounterWithoutItsMark",
		},
		{
			name: "a fence that is not valid has nothing added", file: counter,
			old: "			t.If(k.dir, client.IfSequencer(seq))\n", new: "			_ = seq\n",
			pkg: "./client/recipe", test: "TestCounterFence",
		},
		{
			name: "the cell is not told of a session that is abandoned", file: keep,
			old: "	s.client.session.endSession(Closed, \"it was abandoned\")\n", new: "",
			pkg: "./client", test: "TestKeeperAbandons",
		},
		{
			name: "nor that the work under locks has stopped, if it had ended that session", file: keep,
			old: "	s.client.keeper.stop()\n", new: "",
			pkg: "./client", test: "TestKeeperAbandons",
		},
		{
			name: "sessions that were abandoned do not count as lost", file: keep,
			old: "!s.abandoned.Load() && errors", new: "errors",
			pkg: "./client", test: "TestKeeperAbandons",
		},
	}
}
