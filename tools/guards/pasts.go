package main

// pastSafeguards are those of what a cell remembers of its locks.
func pastSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a node's past goes with the node", file: "raftfsm/files.go",
			old: "	s.past.forget(placeOf(was))\n", new: "",
			pkg: "./raftfsm", test: "TestHoldingsOfANode",
		},
		{
			name: "below its level nothing is remembered", file: "raftfsm/past.go",
			old: "	if s.Level < HistoryLevel {\n", new: "	if s.Level < 1 {\n",
			pkg: "./raftfsm", test: "TestNothingIsRememberedBelowTheLevel",
		},
		{
			name: "a node's past is bounded", file: "raftfsm/past.go",
			old: "	keep := before[max(0, len(before)-api.MaxHoldings+1):]\n", new: "	keep := before\n",
			pkg: "./raftfsm", test: "TestHoldingsOfANode",
		},
		{
			name: "a cell's past is bounded", file: "raftfsm/past.go",
			old: "	case p.count < p.most:\n", new: "	case p.count < p.most || p.most > 0:\n",
			pkg: "./raftfsm", test: "TestRoomForHoldings",
		},
		{
			name: "locks that come and go do not take the past of the others", file: "raftfsm/pastshare.go",
			old: "	at, list := p.after(place{creator, of.hand})\n", new: "	at, list := p.after(place{creator, of.hand[:0]})\n",
			pkg: "./raftfsm", test: "TestRoomForHoldings",
		},
		{
			name: "nobody has the past of others' locks forgotten", file: "raftfsm/pastshare.go",
			old: "		if first.before(largest) {\n", new: "		if false {\n",
			pkg: "./raftfsm", test: "TestNobodyTakesThePastOfOthers",
		},
		{
			name: "what is forgotten next is in a snapshot", file: "raftfsm/pastshare.go",
			old: "		if one.hand != \"\" {\n", new: "		if one.hand == \"/none\" {\n",
			pkg: "./raftfsm", test: "TestForgettingGoesOnFromASnapshot",
		},
		{
			name: "a holding ends with the counter of the cell", file: "raftfsm/past.go",
			old: "h.Until, h.End, h.ToUnix = api.Generation(s.Counter), ", new: "h.Until, h.End, h.ToUnix = h.Generation, ",
			pkg: "./raftfsm", test: "TestHoldingEndsWithTheCounter",
		},
		{
			name: "a snapshot in which two held a lock is refused", file: "raftfsm/past.go",
			old: "				if h.Together(*before) {\n", new: "				if false && h.Together(*before) {\n",
			pkg: "./raftfsm", test: "TestHoldingsThatCannotBe",
		},
		{
			name: "a backup has no past", file: "raftfsm/restore.go",
			old: "s.Origin, s.Roster, s.past, s.Restored = nil, nil, \"\", Roster{}, newPast(s.past.most), nil", new: "s.Origin, s.Roster, s.Restored = nil, nil, \"\", Roster{}, nil",
			pkg: "./raftfsm", test: "TestBackupsHaveNoHistory",
		},
		{
			name: "a restored cell has no past", file: "raftfsm/restore.go",
			old: "s.quotas, s.past, s.staged = g.tree, g.quotas, newPast(s.past.most), nil\n", new: "s.quotas, s.staged = g.tree, g.quotas, nil\n",
			pkg: "./raftfsm", test: "TestBackupsHaveNoHistory|TestRestore",
		},
		{
			name: "who was lost in a fail-over is told apart", file: "cell/internal/master/timekeeper.go",
			old: "FailOver: remembers && t.tables.leases.Unheard(id)", new: "FailOver: false && remembers",
			pkg: "./cell", test: "TestHistoryOfALock",
		},
		{
			name: "who returned to a new master was not lost in the fail-over", file: "session/leases.go",
			old: "	s.inherited = false\n", new: "",
			pkg: "./cell", test: "TestReturnedClientsAreNotLostInAFailOver",
		},
		{
			name: "who may not read a node does not see its past", file: "cell/internal/master/history.go",
			old: "if sight := in.sightOf(state); !sight.reads(path.Name()) {", new: "if sight := in.sightOf(state); false && !sight.reads(path.Name()) {",
			pkg: "./cell", test: "TestLookingTakesRights",
		},
		{
			name: "the history is of a master that is one", file: "cell/internal/master/history.go",
			old: "	if _, err := in.epoch.fence.Prove(ctx); err != nil {\n		return h, err\n	}\n", new: "	_ = in.epoch.fence\n",
			pkg: "./cell", test: "TestDeposedMaster",
		},
		{
			name: "a history in which two held a lock is an error", file: "cmd/chubbyctl/history.go",
			old: "	if a, b, found := h.Overlap(); found {\n", new: "	if a, b, found := h.Overlap(); found && false {\n",
			pkg: "./cmd/chubbyctl", test: "TestHistoryTellsOfTwoHolders",
		},
	}
}
