package main

// stopSafeguards cover a replica that stops, and settings with which it would
// not start.
func stopSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a stop ends though the disk hangs", file: "cell/stopping.go",
			old: "	go r.once.Do(func() { // left", new: "	r.once.Do(func() { // left",
			pkg: "./cell", test: "TestStopEndsThoughTheDiskHangs",
		},
		{
			name: "connections of the http port are bounded", file: "cell/turnover.go",
			old: "	if len(t.open) > t.most {", new: "	if false {",
			pkg: "./cell", test: "TestFloodOfTheHTTPPort",
		},
		{
			name: "clients leave a replica the descriptors that it needs", file: "cell/descriptors.go",
			old: "	return int(max(1, min(uint64(wanted), left)))", new: "	return wanted + 0*int(left)",
			pkg: "./cell", test: "TestConnectionsLeaveDescriptors",
		},
		{
			name: "config check refuses what serve would", file: "cmd/chubbyd/settings.go",
			old: "	if len(d.problems) == 0 { // the", new: "	if false { // the",
			pkg: "./cmd/chubbyd", test: "TestCheckRefusesWhatServeRefuses",
		},
		{
			name: "no port is to be listened on twice", file: "cell/config.go",
			old: "	cfg.checkListen(fault)\n", new: "",
			pkg: "./cmd/chubbyd", test: "TestCheckRefusesWhatServeRefuses",
		},
		{
			name: "a store that fails ends no goroutine but Raft's", file: "cell/internal/disk/stores.go",
			old: "		index, err = s.rawLogs.FirstIndex()\n", new: "		index, err = s.logs.FirstIndex()\n",
			pkg: "./cell", test: "TestStartGoesOnWhenTheStoreFails",
		},
		{
			name: "a replica that stops leads no more while it waits for clients", file: "cell/stopping.go",
			old: "	r.leave()\n	select {", new: "	select {",
			pkg: "./cell", test: "TestStopDoesNotKeepTheMastership",
		},
		{
			name: "one error of accept closes no port", file: "cell/internal/wire/accept.go",
			old: "return !errors.Is(e.Err, net.ErrClosed) }", new: "return false && !errors.Is(e.Err, net.ErrClosed) }",
			pkg: "./cell", test: "TestPortsOutliveAnError",
		},
		{
			name: "an error of accept is told", file: "cell/internal/wire/arrivals.go",
			old: "			l.Connections.stumble(err)\n", new: "",
			pkg: "./cell", test: "TestPortsOutliveAnError",
		},
	}
}
