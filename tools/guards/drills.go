package main

// drillGuards are those whose lack the drills with real processes notice.
func drillGuards() []guard {
	return []guard{
		{
			name: "a lease begins with a sign of life (real processes)", file: "cell/life.go",
			old: "	return now.Sub(last) <= maxSilence\n", new: "	return true\n",
			pkg: "./e2e", test: "TestSilentHolder",
		},
		{
			name: "the master times the whole lock-delay (real processes)", file: "cell/master.go",
			old: "m.delays.start(name, d.ID, d.For, m.clock())\n			m.log", new: "m.delays.start(name, d.ID, 0, m.clock())\n			m.log",
			pkg: "./e2e", test: "TestSilentHolder",
		},
	}
}
