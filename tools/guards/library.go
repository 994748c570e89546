package main

// librarySafeguards cover the client library: how calls end, and what they leave to other
// calls.
func librarySafeguards() []safeguard {
	return []safeguard{
		{
			name: "what is given back outlives the context", file: "client/cleanup.go",
			old: "	ctx = context.WithValue(ctx, cleanupKey{}, true)\n", new: "	if true {\n		return ctx, func() {}\n	}\n",
			pkg: "./client", test: "TestPartingWithEndedContext",
		},
		{
			name: "one call waits for a cell that is away", file: "client/cleanup.go",
			old: "late && c.session.isUnanswered()", new: "late && false",
			pkg: "./client", test: "TestPartingFromACellThatIsAway",
		},
		{
			name: "what a recipe gives back outlives the context", file: "client/recipe/held.go",
			old: "	ctx, cancel := c.CleanupContext(ctx)\n", new: "	ctx, cancel := context.WithCancel(ctx)\n",
			pkg: "./client/recipe", test: "TestGivenBackWithEndedContext",
		},
		{
			name: "a handle that is used is not kept", file: "client/idlehandles.go",
			old: " || h.callsInFlight > 0", new: "",
			pkg: "./client", test: "TestHandleInUseIsNotKept",
		},
		{
			name: "a handle that locks is not kept", file: "client/idlehandles.go",
			old: "used := h.lockRequested || h.boundToken != nil", new: "used := h.boundToken != nil",
			pkg: "./client", test: "TestHandleInUseIsNotKept",
		},
		{
			name: "a change of state is told whatever else is", file: "client/notifier.go",
			old: "		if one.isChange == change {\n", new: "		if true || one.isChange {\n",
			pkg: "./client", test: "TestJeopardyIsToldWithManyLocks|TestSlowReceiver",
		},
		{
			name: "a quota is waited for after a loss only", file: "client/renew.go",
			old: "return lost != 0 && clock", new: "return true || clock",
			pkg: "./client", test: "TestRenewRefused",
		},
		{
			name: "a record of no service is no address", file: "client/servers.go",
			old: "		if host == \"\" {", new: "		if false {",
			pkg: "./client", test: "TestServers",
		},
		{
			name: "one file of a recipe stops nobody", file: "client/recipe/watch.go",
			old: "	return gone(err) || slices.Contains([]api.Code{", new: "	return gone(err) || false && slices.Contains([]api.Code{",
			pkg: "./client/recipe", test: "TestQueuePassesOverWhatItCannotUse|TestSemaphorePassesOverSpoiltSlots",
		},
		{
			name: "who crashed and restarts has his name", file: "client/recipe/presence.go",
			old: "	return r.PID == mine.PID || !runs(r.PID)\n", new: "	return r.PID == mine.PID || false && !runs(r.PID)\n",
			pkg: "./client/recipe", test: "TestNameAfterACrash",
		},
		{
			name: "a crowd does not hide a free lock", file: "client/acquirepolling.go",
			old: "	timer := time.NewTimer(0) // the first try is at once\n", new: "	timer := time.NewTimer(1000 * time.Hour)\n",
			pkg: "./client", test: "TestFreeLockInACrowd|TestGivenUpInACrowd",
		},
		{
			name: "a crowd tries one at a time", file: "client/acquirepolling.go",
			old: "		defer func() { <-c.numbers.polling }()\n", new: "		<-c.numbers.polling\n",
			pkg: "./client", test: "TestCrowdIsThrifty",
		},
		{
			name: "nobody forges a line of a log", file: "api/errors.go",
			old: "	text := printable(e.text())\n", new: "	text := e.text()\n",
			pkg: "./api", test: "TestErrorTextIsOneLine",
		},
		{
			name: "a refusal names the holders", file: "client/acquire.go",
			old: "	own.Message = \"held by \" + whoHolds(e.Holders) + \"; \" + own.Message\n", new: "",
			pkg: "./client", test: "TestRefusalNamesHolders",
		},
		{
			name: "a search that goes on is logged", file: "client/locate.go",
			old: "		log.noteFailedRound(ctx, l)\n", new: "		_ = log\n",
			pkg: "./client", test: "TestSearchIsLogged",
		},
		{
			name: "a name service delays no search", file: "client/locateaddresses.go",
			old: "	if len(known) > 0 {\n		timer", new: "	if false {\n		timer",
			pkg: "./client", test: "TestNameServiceHangs",
		},
		{
			name: "kept handles make room in the quota", file: "client/open.go",
			old: "api.QuotaExceeded) && c.closeAllIdleHandles()", new: "api.QuotaExceeded) && false",
			pkg: "./client", test: "TestSparesMakeRoomInTheQuota",
		},
		{
			name: "a stalled upload is cut off behind any wrapper", file: "sequencer/seqhttp/server.go",
			old: "					r.Body = &sectionBody{ctx: ctx, body: r.Body}\n", new: "",
			pkg: "./sequencer/seqhttp", test: "TestStalledUploadIsCutOff",
		},
		{
			name: "an address is its server's", file: "client/recipe/names.go",
			old: "	o.wait = true\n", new: "	o.wait = false\n",
			pkg: "./client/recipe", test: "TestNameAfterACrash",
		},
	}
}
