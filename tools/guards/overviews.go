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
