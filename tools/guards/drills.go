package main

// drillSafeguards are those that only the drills with real processes test.
func drillSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a lease begins with a sign of life (real processes)", file: "cell/internal/master/life.go",
			old: "	return now.Sub(last) <= maxSilence\n", new: "	return true\n",
			pkg: "./e2e", test: "TestSilentHolder",
		},
		{
			name: "the master times the whole lock-delay (real processes)", file: "cell/internal/master/observer.go",
			old: "o.tables.delays.start(name, d.ID, d.For, o.epoch.clock())", new: "o.tables.delays.start(name, d.ID, 0, o.epoch.clock())",
			pkg: "./e2e", test: "TestSilentHolder",
		},
	}
}
