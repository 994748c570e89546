package main

// queueRoomSafeguards cover what a work queue keeps where there is little room, or where a worker, a timer or a moment
// could spoil it.
func queueRoomSafeguards() []safeguard {
	return []safeguard{
		{
			name: "what is counted has its room", file: "client/recipe/itemrecord.go",
			old: "	for len(header) < minItemHeader {\n", new: "	for false {\n",
			pkg: "./client/recipe", test: "TestQueueAtItsQuota|TestQueueRecordHasItsRoom",
		},
		{
			name: "a reason that has no room is left out", file: "client/recipe/itemrecord.go",
			old: "	if errors.Is(err, api.QuotaExceeded) && r.Reason != \"\" {\n", new: "	if errors.Is(err, api.NotDirectory) && r.Reason != \"\" {\n",
			pkg: "./client/recipe", test: "TestQueueAtItsQuota",
		},
		{
			name: "who puts leaves room for the turnstile", file: "client/recipe/queue.go",
			old: "q.door.ensure(ctx); err != nil", new: "error(nil); err != nil",
			pkg: "./client/recipe", test: "TestQueueAtItsQuota",
		},
		{
			name: "an item that is too large holds up nobody", file: "client/recipe/itemrecord.go",
			old: "	case len(data) > MaxItemSize:", new: "	case false:",
			pkg: "./client/recipe", test: "TestQueuePassesOverWhatHasNoRoom",
		},
		{
			name: "an item that cannot be written holds up nobody", file: "client/recipe/taking.go",
			old: "	case errors.Is(err, api.QuotaExceeded):", new: "	case false:",
			pkg: "./client/recipe", test: "TestQueuePassesOverWhatHasNoRoom",
		},
		{
			name: "an item that cannot be written is tried once in a while", file: "client/recipe/taking.go",
			old: "		t.shut(ctx, one)\n		t.passOver(one, s, err)\n", new: "		t.passOver(one, s, err)\n",
			pkg: "./client/recipe", test: "TestQueuePassesOverWhatHasNoRoom",
		},
		{
			name: "a timer that was set again has not rung", file: "client/recipe/busyitem.go",
			old: "	if b.set != set {\n", new: "	if b.set < set {\n",
			pkg: "./client/recipe", test: "TestQueueTimerThatWasSetAgain",
		},
		{
			name: "an item that is given back is what was put", file: "client/recipe/item.go",
			old: "i.held.lock, i.data, i.content)", new: "i.held.lock, i.Data, i.content)",
			pkg: "./client/recipe", test: "TestQueueDataIsAsItWasPut",
		},
		{
			name: "a worker's data are its own", file: "client/recipe/taking.go",
			old: "= bytes.Clone(read.data), ", new: "= append(read.data, bytes.Clone(nil)...), ",
			pkg: "./client/recipe", test: "TestQueueDataIsAsItWasPut",
		},
		{
			name: "a dead letter that may not be read is one", file: "client/recipe/deadletter.go",
			old: "one.Dead || one.Err != nil && isMarked", new: "one.Dead || false && isMarked",
			pkg: "./client/recipe", test: "TestQueueDeadLetterThatMayNotBeRead",
		},
		{
			name: "the cell says whether an item is done", file: "cmd/chubbyctl/queuetake.go",
			old: "	case ran != nil && item.Err() != nil:\n", new: "	case item.Err() != nil:\n",
			pkg: "./cmd/chubbyctl", test: "TestItemThatIsLostWhenItIsDone",
		},
	}
}
