package main

// waitSafeguards cover requests that wait through a handle, and events about locks.
func waitSafeguards() []safeguard {
	return []safeguard{
		{
			name: "the log is asked about no handle that is being closed", file: "cell/internal/master/offers.go",
			old: "w.offered || w.refusal == nil && o.queues.isClosing(w.owner()) || !o.isAnswerable(w)", new: "w.offered || !o.isAnswerable(w)",
			pkg: "./cell/internal/master", test: "TestClosingHandleIsNotAskedAbout",
		},
		{
			name: "a Close that was refused lets the log be asked", file: "cell/internal/master/offers.go",
			old: "			o.outbox.putRequest(w)\n			o.outbox.putLock(", new: "			o.outbox.putLock(",
			pkg: "./cell/internal/master", test: "TestRefusedCloseLetsTheLogBeAsked",
		},
		{
			name: "those who wait through a closed handle are refused in pieces", file: "cell/internal/master/close.go",
			old: "		f.epoch.mu.pause(4) // a proposal is made, and handed over\n", new: "",
			pkg: "./cell/internal/master", test: "TestNoHoldIsLong",
		},
		{
			name: "locks are offered again in pieces", file: "cell/internal/master/outbox.go",
			old: "takeKeys(o.locks, maxOffers)", new: "takeKeys(o.locks, 1<<30)",
			pkg: "./cell/internal/master", test: "TestNoHoldIsLong",
		},
		{
			name: "a vacancy is told once", file: "namespace/drop.go",
			old: "	if was.held() && !is.held() {\n", new: "	if len(is.Holders) < len(was.Holders) {\n",
			pkg: "./cell/internal/master", test: "TestVacancyIsToldOnce",
		},
		{
			name: "a vacancy is told though a delay runs", file: "cell/internal/master/observer.go",
			old: "	o.events.tellVacant(r)\n", new: "	if len(r.Free) > 0 {\n		o.events.tellVacant(r)\n	}\n",
			pkg: "./cell/internal/master", test: "TestVacancyUnderADelayIsTold",
		},
		{
			name: "vacancies are told in their order", file: "cell/internal/master/events.go",
			old: "		if !handedOn[v.Lock] {\n", new: "		if node, _ := p.epoch.state().Tree.Get(v.Lock.Name); node != nil && len(node.Holders) == 0 {\n",
			pkg: "./cell/internal/master", test: "TestVacanciesAreToldInTheirOrder",
		},
		{
			name: "readers do not wait for the delay of a reader", file: "cell/internal/master/observer.go",
			old: "slices.Concat(r.Free, r.Delayed, joinable(r.Claims))", new: "slices.Concat(r.Free, joinable(r.Claims))",
			pkg: "./cell/internal/master", test: "TestReadersDoNotWaitForTheDelayOfAReader",
		},
		{
			name: "a call of an earlier epoch is refused", file: "cell/internal/master/sessions.go",
			old: "	if who.Epoch != s.epoch.number {\n", new: "	if false {\n",
			pkg: "./cell/internal/master", test: "TestCallOfAnotherEpochIsRefused",
		},
		{
			name: "a lease is granted after a proof", file: "cell/internal/master/parked.go",
			old: "t0, err := s.epoch.fence.Prove(ctx)", new: "t0, err := s.epoch.clock(), error(nil)",
			pkg: "./cell", test: "TestDeposedMaster",
		},
	}
}
