package main

// consolePageSafeguards are those of what the console says: that it does what a form has said and no more, says what is so, and is bounded.
func consolePageSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a form does nothing if what it says has changed", file: "cell/internal/console/actions.go",
			old: "		case form.Seen != q.PostForm.Get(\"seen\"):\n", new: "		case false:\n",
			pkg: "./cell", test: "TestConsoleStaleForms",
		},
		{
			name: "a link puts nothing into a form but what it is about", file: "cell/internal/console/actions.go",
			old: "		for _, name := range a.names {\n", new: "		for name := range q.URL.Query() {\n",
			pkg: "./cell", test: "TestConsoleFormsFromLinks",
		},
		{
			name: "an address says what was done for a moment", file: "cell/internal/console/actions.go",
			old: " > doneTime {", new: " > 100*doneTime {",
			pkg: "./cell", test: "TestConsoleSaysOnlyWhatWasDone",
		},
		{
			name: "what may have been done is not said to be undone", file: "cell/internal/console/actions.go",
			old: "	case api.OK, api.Uncertain, api.DeadlineExceeded, api.SessionExpired:", new: "	case api.OK:",
			pkg: "./cell/internal/console", test: "TestOutcomes",
		},
		{
			name: "a program that waits for itself is in no ring", file: "cell/internal/console/waitgraph.go",
			old: "	if len(sessions) > 1 {\n", new: "	if len(sessions) > 0 {\n",
			pkg: "./cell/internal/console", test: "TestNoRingOfOneSession",
		},
		{
			name: "of each group that waits for itself one ring is named", file: "cell/internal/console/waitgraph.go",
			old: "				low[node] = min(low[node], low[next])\n", new: "",
			pkg: "./cell/internal/console", test: "TestRings",
		},
		{
			name: "the page of waits is bounded", file: "cell/internal/console/waits.go",
			old: "min(len(holders), maxRows-len(p.Edges))", new: "len(holders)",
			pkg: "./cell/internal/console", test: "TestWaitsOfManyAreBounded",
		},
		{
			name: "one principal does not take all streams of events", file: "cell/internal/console/visitors.go",
			old: "own >= maxOwnStreams", new: "own >= maxStreams",
			pkg: "./cell", test: "TestConsoleStreamsOfOne",
		},
		{
			name: "a stream of events ends with its login", file: "cell/internal/console/login.go",
			old: "		_, still := ls.at(hash)\n		return still\n", new: "		return true\n",
			pkg: "./cell", test: "TestConsoleStreamEndsWithItsLogin",
		},
		{
			name: "a stream of events says what it has missed", file: "cell/internal/console/events.go",
			old: "time.Parse(time.RFC3339, s.last); err == nil {", new: "time.Parse(time.RFC3339, s.last); err == nil && false {",
			pkg: "./cell", test: "TestConsoleStreamSaysWhatItMissed",
		},
		{
			name: "a take-over waits for no first lease when nobody is left", file: "cell/takeovertimes.go",
			old: "		t.awaited.And(^awaitsFirst) // nobody is left who could return: the first lease would be that of a client that is new\n", new: "",
			pkg: "./cell", test: "TestNoFirstLeaseOfADeadSession",
		},
	}
}
