package main

// restoreSafeguards are those of restoring a cell from a backup.
func restoreSafeguards() []safeguard {
	return []safeguard{
		{
			name: "no session begins while a backup takes the place of all", file: "raftfsm/sessions.go",
			old: "	if by, sealed := s.Restoring(); sealed {\n", new: "	if by, sealed := s.Restoring(); sealed && false {\n",
			pkg: "./cell", test: "TestRestoreWaitsForHolders",
		},
		{
			name: "a backup is restored when no other session is left", file: "raftfsm/restore.go",
			old: "	case s.Sessions.Len() > 1:\n", new: "	case false:\n",
			pkg: "./raftfsm", test: "TestRestore",
		},
		{
			name: "a restore waits for the sessions it ends", file: "cell/internal/master/restore.go",
			old: "c.Finish && sealed && by == c.Mutation.Session && state.Sessions.Len() > 1 {", new: "false && sealed && by == 0 {",
			pkg: "./cell", test: "TestRestoreWaitsForHolders",
		},
		{
			name: "a restore keeps lock-delays", file: "raftfsm/restore.go",
			old: "		g.tree.RestoreDelay(name, d)\n", new: "		_, _ = name, d\n",
			pkg: "./cell", test: "TestRestoreWaitsForHolders",
		},
		{
			name: "guards know the cell after a restore", file: "raftfsm/restore.go",
			old: "	if g.Cell == s.Cell && g.CellID != s.CellID {\n", new: "	if false {\n",
			pkg: "./cell", test: "TestRestoreIntoAnotherCell",
		},
		{
			name: "replicas know their cell after a restore", file: "cell/epochs.go",
			old: "	if state.Cell != r.cfg.Cell || cmp.Or(state.Origin, state.CellID) != id {", new: "	if state.Cell != r.cfg.Cell || state.CellID != id {",
			pkg: "./cell", test: "TestRestoreIntoAnotherCell",
		},
		{
			name: "a restore ends with its session", file: "raftfsm/sessions.go",
			old: "		if s.staged != nil && s.staged.session == end.Session {\n", new: "		if false {\n",
			pkg: "./raftfsm", test: "TestRestoreIsGivenUp",
		},
		{
			name: "a restore is for operators", file: "raftfsm/restore.go",
			old: "		if err := s.PermitOperator(s.principal(id)); err != nil {\n", new: "		if err := s.PermitOperator(s.principal(id)); false {\n			_ = err\n",
			pkg: "./raftfsm", test: "TestRestore",
		},
		{
			name: "a session that caches restores nothing", file: "raftfsm/restore.go",
			old: "	case who.MayCache:\n", new: "	case who.MayCache && false:\n",
			pkg: "./raftfsm", test: "TestRestore",
		},
		{
			name: "nodes of a backup are held by nobody", file: "namespace/adopt.go",
			old: "	next.Mode, next.Holders, next.Openers, next.Revoked, next.Children = 0, nil, nil, nil, 0\n", new: "	next.Children = 0\n",
			pkg: "./raftfsm", test: "TestRestore",
		},
		{
			name: "quotas of a backup are of principals that can be", file: "raftfsm/restore.go",
			old: "		if q.Principal == \"\" || len(q.Principal) > api.MaxPrincipal {", new: "		if false {",
			pkg: "./raftfsm", test: "TestRestoreRefusesQuotas",
		},
		{
			name: "a backup is restored whole", file: "raftfsm/restore.go",
			old: "nodes != g.Nodes || g.quotas.Len() != g.Quotas {", new: "nodes < 0 {",
			pkg: "./raftfsm", test: "TestRestore",
		},
		{
			name: "a backup that is being restored survives a restart", file: "raftfsm/snapshot.go",
			old: "	return in.staged(s, h.Staged)\n", new: "	return nil\n",
			pkg: "./raftfsm", test: "TestRestore",
		},
		{
			name: "no backup has another one in it", file: "raftfsm/restore.go",
			old: "	s.Secret, s.staged, s.Origin, s.Roster, s.past, s.Restored = nil, nil, \"\", Roster{}, newPast(s.past.most), nil\n", new: "	s.Secret, s.Origin, s.Roster, s.past, s.Restored = nil, \"\", Roster{}, newPast(s.past.most), nil\n",
			pkg: "./cell", test: "TestRestoreIsInterrupted",
		},
	}
}

// restoredNumberSafeguards are those of the numbers of a cell that was restored.
func restoredNumberSafeguards() []safeguard {
	return []safeguard{
		{
			name: "tokens go on above those of the cell", file: "raftfsm/restore.go",
			old: "		return s.Counter + 1\n", new: "		return g.Counter\n",
			pkg: "./cell", test: "TestRestore",
		},
		{
			name: "what a restore brings has a generation of its own", file: "raftfsm/restore.go",
			old: "	g.tree.Renew(api.Generation(counter))\n", new: "",
			pkg: "./raftfsm", test: "TestGenerationsAfterARestore",
		},
		{
			name: "a cell that goes back has no generation twice", file: "raftfsm/restore.go",
			old: "		return s.Counter + 1\n", new: "		return s.Counter\n",
			pkg: "./raftfsm", test: "TestGenerationsAfterARestore",
		},
		{
			name: "tokens go on above those of the backup", file: "raftfsm/restore.go",
			old: "	return max(s.Counter, g.Counter) + RestoreGap\n", new: "	return s.Counter + RestoreGap\n",
			pkg: "./cell", test: "TestRestoreIntoAnotherCell",
		},
		{
			name: "tokens go on above those that the backup does not know", file: "raftfsm/restore.go",
			old: "	return max(s.Counter, g.Counter) + RestoreGap\n", new: "	return max(s.Counter, g.Counter) + 1\n",
			pkg: "./raftfsm", test: "TestTokensOfABackup",
		},
		{
			name: "a cell that goes back leaves the gap to the next one", file: "raftfsm/restore.go",
			old: "	if s.hasIssued(&g.RestoreBegin) {\n", new: "	if false {\n",
			pkg: "./raftfsm", test: "TestTokensOfABackup",
		},
		{
			name: "a restored cell has tokens left", file: "raftfsm/restore.go",
			old: "const maxRestored = api.MaxGeneration - 2*RestoreGap\n", new: "const maxRestored = api.MaxGeneration - RestoreGap\n",
			pkg: "./raftfsm", test: "TestTokensAfterTheHighestCounter",
		},
	}
}
