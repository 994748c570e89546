package main

// queueSafeguards cover waiting: for a lock, for caches, for the removal of a node.
func queueSafeguards() []safeguard {
	return []safeguard{
		{
			name: "one who leaves a queue without the lock makes room", file: "cell/internal/master/queue.go",
			old: "	if err != nil || a.Code() != api.OK {\n		q.outbox.putLock(w.lock.Name)\n	}\n", new: "",
			pkg: "./cell/internal/master", test: "TestRefusedByTheLogMakesRoom",
		},
		{
			name: "a lock is offered to those who wait for that node", file: "cell/internal/master/queue.go",
			old: "		if w.lock != lock || q.isSkipped(w) {\n", new: "		if q.isSkipped(w) {\n",
			pkg: "./cell/internal/master", test: "TestSuccessorsAreOfOneNode",
		},
		{
			name: "a lock is handed over to those who wait for that node", file: "cell/internal/master/queue.go",
			old: "		if w.lock != lock || q.isSkipped(w) {\n", new: "		if q.isSkipped(w) {\n",
			pkg: "./cell/internal/master", test: "TestHandOverIsOfOneNode",
		},
		{
			name: "the log is not asked about a request that is finished", file: "cell/internal/master/refusals.go",
			old: "		err = f.checkUnfinished(by) //", new: "		err = nil //",
			pkg: "./cell/internal/master", test: "TestLateCopyOfLoggedOpen",
		},
		{
			name: "a refusal is final if it says that nothing was done", file: "raftfsm/result.go",
			old: "	e.Final = refusal.IsFinal(e.Code)\n", new: "	e.Final = true\n",
			pkg: "./raftfsm", test: "TestRefusalThatIsNotFinal",
		},
		{
			name: "only those who are late are cut off", file: "cell/internal/master/coherence.go",
			old: "co.copyset.asked(ch, id, now); left > 0", new: "now.Sub(ch.since); left > 0",
			pkg: "./cell/internal/master", test: "TestOnlyWhoIsLateIsCutOff",
		},
		{
			name: "those told later are cut off later", file: "cell/internal/master/coherence.go",
			old: "			late.Reset(co.cutOff(ch, names))\n", new: "			co.cutOff(ch, names)\n",
			pkg: "./cell/internal/master", test: "TestOnlyWhoIsLateIsCutOff",
		},
		{
			name: "all removals are begun at once", file: "cell/internal/master/remover.go",
			old: "	if len(r.dying) > 0 && len(r.waiting) < maxRemovals {\n", new: "	if false {\n",
			pkg: "./cell/internal/master", test: "TestSlowCacheDelaysItsNodesOnly",
		},
		{
			name: "a look at slow removals lets others in", file: "cell/internal/master/remover.go",
			old: "	r.epoch.mu.Lock()\n	for one := range r.waiting {\n",
			new: "	r.epoch.mu.Lock()\n	for one := range r.waiting {\n		r.epoch.mu.steps = 0\n",
			pkg: "./cell/internal/master", test: "TestNoHoldIsLong",
		},
	}
}
