package main

// answerSafeguards cover the answers to clients' requests: an answer must agree with the log.
func answerSafeguards() []safeguard {
	return []safeguard{
		{
			name: "what was marked for a command that was refused is unmarked", file: "cell/internal/master/epoch.go",
			old: "		e.unproposed(one.command, false)\n	}\n	return err\n", new: "		_ = e.unproposed\n	}\n	return err\n",
			pkg: "./cell/internal/master", test: "TestRefusedRelease",
		},
		{
			name: "a handle is closed when its Close has committed", file: "cell/internal/master/close.go",
			old: "	_, err := f.epoch.proposeBuilt(ctx, func() raftfsm.Command {\n		f.epoch.mu.pause(f.queues.stepsOf(h.Node.Name))\n		f.queues.closing[h.Owner]++\n",
			new: "	_, err := f.epoch.proposeBuilt(ctx, func() raftfsm.Command {\n		f.handles.close(h.Owner)\n		f.queues.closing[h.Owner]++\n",
			pkg: "./cell/internal/master", test: "TestRefusedClose",
		},
		{
			name: "Close goes by what the log says", file: "cell/internal/master/close.go",
			old: "	return gone == nil && (node.Holds(h.Owner) || slices.Contains(node.Openers, h.Owner))\n", new: "	_, _ = gone, slices.Contains(node.Openers, h.Owner)\n	return false\n",
			pkg: "./cell/internal/master", test: "TestCloseGoesByTheLog",
		},
		{
			name: "one whose handle is being closed is offered nothing", file: "cell/internal/master/queue.go",
			old: "w.refusal != nil || q.isClosing(w.owner())\n", new: "w.refusal != nil\n",
			pkg: "./cell/internal/master", test: "TestClosingHandleIsOfferedNothing",
		},
		{
			name: "who asks for a lock while its handle is being closed gets nothing", file: "cell/internal/master/close.go",
			old: "	if one := f.handles.find(owner); one == nil || !one.open || f.queues.isClosing(owner) {\n", new: "	if one := f.handles.find(owner); one == nil || !one.open {\n",
			pkg: "./cell/internal/master", test: "TestClosingHandleTakesNoRequest",
		},
		{
			name: "who needs no free lock is answered when there is room", file: "cell/internal/master/timekeeper.go",
			old: "	for _, w := range requests {\n		t.offers.askLog(w)\n	}\n", new: "	_ = requests\n",
			pkg: "./cell/internal/master", test: "TestSettledRequestIsAnsweredLater",
		},
		{
			name: "a successor is named under the hold under which its command is handed over", file: "cell/internal/master/timekeeper.go",
			old: "	for left := ending[:ends]; len(left) > 0; {\n		var c raftfsm.Command\n		c, left = t.offers.endCommand(left)\n		t.epoch.submit(c)\n",
			new: "	var late []raftfsm.Command\n	for left := ending[:ends]; len(left) > 0; {\n		var c raftfsm.Command\n		c, left = t.offers.endCommand(left)\n		late = append(late, c)\n	}\n	for _, c := range late {\n		t.epoch.submit(c)\n",
			pkg: "./cell/internal/master", test: "TestSuccessorIsNamedWhenItsCommandIsHandedOver",
		},
		{
			name: "the log refuses, not the master", file: "cell/internal/master/refusals.go",
			old: "	return f.epoch.refuseAs(ctx, by, r, after)\n", new: "	after()\n	return raftfsm.Result{}, because\n",
			pkg: "./cell/internal/master", test: "TestGrantedIsNotRefused",
		},
		{
			name: "the quota of handles is asked before the log", file: "cell/internal/master/files.go",
			old: "	return f.handles.reserve(h, principal, counts, &allowed)\n", new: "	_ = allowed\n	return f.handles.reserve(h, principal, counts, nil)\n",
			pkg: "./cell/internal/master", test: "TestRefusedOpenMakesNothing",
		},
		{
			name: "a late copy of an Open opens nothing", file: "cell/internal/master/files.go",
			old: "!f.handles.own(by.Session).declared.Finished(by.Number) {", new: "true {",
			pkg: "./cell/internal/master", test: "TestLateCopyOfOpen",
		},
		{
			name: "an Open that was refused stays refused", file: "cell/internal/master/handles.go",
			old: "	t.own(by.Session).refused[by.Number] = told\n", new: "",
			pkg: "./cell/internal/master", test: "TestLateCopyOfOpen",
		},
		{
			name: "no handle is entered for a session that has ended", file: "cell/internal/master/files.go",
			old: "		return f.epoch.sessionEnded(by.Session) // though that", new: "		f.handles.own(by.Session)\n		return f.epoch.sessionEnded(by.Session) // though that",
			pkg: "./cell/internal/master", test: "TestOpenOfAnEndedSession",
		},
		{
			name: "closed handles of earlier epochs are bounded", file: "cell/internal/master/handles.go",
			old: "	if len(own.earlier) >= api.MaxHandles {\n", new: "	if false {\n",
			pkg: "./cell/internal/master", test: "TestHandlesOfEarlierEpochs",
		},
		{
			name: "TryAcquire overtakes nobody", file: "cell/internal/master/queue.go",
			old: "		if w.lock == lock && !q.isSkipped(w) && w.claim.Mode.Conflicts(mode) {\n", new: "		if false {\n",
			pkg: "./cell/internal/master", test: "TestTryAcquireOvertakesNobody",
		},
		{
			name: "who gets a lock hears who waits for it", file: "cell/internal/master/observer.go",
			old: "			o.events.tellConflictAlready(claim.Owner, claim.Answer)\n", new: "			_ = o.events.tellConflictAlready\n",
			pkg: "./cell/internal/master", test: "TestSuccessorHearsOfConflict",
		},
		{
			name: "a ticket is of one lock", file: "cell/internal/wire/tokens.go",
			old: " || numbers[4] != uint64(lock.Instance) {", new: " {",
			pkg: "./cell/internal/wire", test: "TestTicketOfAnotherLock",
		},
		{
			name: "expired is what the log says", file: "cell/internal/master/refusals.go",
			old: "	case ok:\n		return api.Errorf(api.Unavailable,", new: "	case false:\n		return api.Errorf(api.Unavailable,",
			pkg: "./cell/internal/master", test: "TestExpiredIsWhatTheLogSays",
		},
		{
			name: "a refusal that is not the log's does not settle a request", file: "client/dispatcher.go",
			old: "result != outcomeUncertain || e.Final || e.Code", new: "result != outcomeUncertain || e.Err == nil || e.Code",
			pkg: "./client", test: "TestRefusalAfterALostAnswer",
		},
	}
}
