package main

// meterSafeguards are those of what programs and replicas measure.
func meterSafeguards() []safeguard {
	return []safeguard{
		{
			name: "what closed sessions have counted stays", file: "client/clientprom/metrics.go",
			old: "		m.closed.add(c)\n", new: "",
			pkg: "./client/clientprom", test: "TestTroublesAreCounted",
		},
		{
			name: "the operations of a program's metrics are bounded", file: "client/clientprom/times.go",
			old: "	if len(known) >= maxCalls {", new: "	if false {",
			pkg: "./client/clientprom", test: "TestLabelsAreBounded",
		},
		{
			name: "each use of a kept lock is measured", file: "client/acquire.go",
			old: "		l.markHeld()\n		return l, nil\n", new: "		return l, nil\n",
			pkg: "./client/clientprom", test: "TestKeptLocksAreCountedByUse",
		},
		{
			name: "dropped events are counted", file: "client/events.go",
			old: "		h.client.session.counters.eventsDropped.Add(1)\n", new: "",
			pkg: "./client/clientprom", test: "TestDroppedEventsAreCounted",
		},
		{
			name: "a share is of a principal's own quota", file: "cell/internal/master/quota.go",
			old: "		used, allowed := state.Tree.Usage(name), state.Quota(name)\n", new: "		used, allowed := state.Tree.Usage(name), api.DefaultQuota()\n",
			pkg: "./cell", test: "TestQuotasAreMeasured",
		},
	}
}
