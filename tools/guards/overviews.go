package main

// overviewSafeguards are those of what is shown of a cell, and of what is counted.
func overviewSafeguards() []safeguard {
	return []safeguard{
		{
			name: "the numbers of a cell are for operators", file: "cell/internal/master/overview.go",
			old: "	if o.Whole {\n", new: "	if true {\n",
			pkg: "./cell", test: "TestOverviewIsForWhoMayLook",
		},
		{
			name: "what was counted is for operators", file: "cell/internal/wire/overview.go",
			old: "		if o.Whole {\n", new: "		if true {\n",
			pkg: "./cell", test: "TestOverviewIsForWhoMayLook",
		},
		{
			name: "an overview has what its viewer may read", file: "cell/internal/master/overview.go",
			old: "!seen[one.what] && sees(one.what) {", new: "!seen[one.what] {",
			pkg: "./cell", test: "TestOverviewIsForWhoMayLook",
		},
		{
			name: "what has waited longest is kept", file: "cell/internal/master/overview.go",
			old: "		if a.since <= t {\n", new: "		if a.since >= t {\n",
			pkg: "./cell/internal/master", test: "TestLongestList",
		},
		{
			name: "an overview knows who came during its walk", file: "cell/internal/master/overview.go",
			old: "	waits, clearings := collectWaits(in)\n	state := in.epoch.state() // as it is after that: who waits is in it\n",
			new: "	state := in.epoch.state()\n	waits, clearings := collectWaits(in)\n",
			pkg: "./cell/internal/master", test: "TestOverviewAsksForRightsAfterTheWalk",
		},
		{
			name: "an overview asks for no rights under the mutex", file: "cell/internal/master/overview.go",
			old: "		oldest := line[0].since\n", new: "		oldest := line[0].since\n		_ = in.sightOf(in.epoch.state()).reads(name)\n",
			pkg: "./cell/internal/master", test: "TestOverviewAsksForRightsAfterTheWalk",
		},
		{
			name: "an overview is no longer than a page", file: "cell/internal/master/overview.go",
			old: "bytes > api.MaxPageBytes && i > 0 {", new: "bytes < 0 && i > 0 {",
			pkg: "./cell/internal/master", test: "TestOverviewHasABound",
		},
		{
			name: "what a walk meets twice is listed once", file: "cell/internal/master/overview.go",
			old: "!seen[one.what] && sees(one.what) {", new: "sees(one.what) {",
			pkg: "./cell/internal/master", test: "TestLongestAreListedOnce",
		},
		{
			name: "the longest wait of a queue may not be its first's", file: "cell/internal/master/overview.go",
			old: "			oldest = min(oldest, w.since)\n", new: "			_ = w\n",
			pkg: "./cell/internal/master", test: "TestOverviewFindsTheOldestWait",
		},
		{
			name: "after a fail-over a change is counted as waiting", file: "cell/internal/master/backlog.go",
			old: "		changes++ // after a fail-over: every change\n", new: "",
			pkg: "./cell/internal/master", test: "TestFlushIsOfTheBacklog",
		},
		{
			name: "the clock of top begins when the master has answered", file: "cmd/chubbyctl/top.go",
			old: "	if l.overview, err = c.Overview(ctx, most); err != nil {\n		return err\n	}\n	l.clock = stopwatch()\n",
			new: "	l.clock = stopwatch()\n	if l.overview, err = c.Overview(ctx, most); err != nil {\n		return err\n	}\n",
			pkg: "./cmd/chubbyctl", test: "TestTopClockBeginsWithTheAnswer",
		},
		{
			name: "Ctrl-C in a look ends top well", file: "cmd/chubbyctl/repeat.go",
			old: "		case hasEnded(cmd.Context()):\n			return nil\n", new: "",
			pkg: "./cmd/chubbyctl", test: "TestTopEndsInALook",
		},
		{
			name: "rates are of one master", file: "cmd/chubbyctl/top.go",
			old: " || l.overview.Epoch != before.overview.Epoch", new: "",
			pkg: "./cmd/chubbyctl", test: "TestTopRatesAreOfOneMaster",
		},
		{
			name: "the longest path counts a lock", file: "cell/locktimes.go",
			old: "cmp.Compare(len(b.name), len(a.name))", new: "cmp.Compare(len(a.name), len(b.name))",
			pkg: "./cell", test: "TestLockTimesOfPrefixes",
		},
		{
			name: "one goroutine writes for a link", file: "internal/frames/outlet.go",
			old: "		if !o.stays {\n", new: "		if true {\n",
			pkg: "./internal/frames", test: "TestOneGoroutineWritesForALink",
		},
	}
}
