package main

import "slices"

// transactionSafeguards cover changes of several files in one step.
func transactionSafeguards() []safeguard {
	return slices.Concat(appliedTransactionSafeguards(), servedTransactionSafeguards(), sentTransactionSafeguards())
}

// appliedTransactionSafeguards are those of the replicated state.
func appliedTransactionSafeguards() []safeguard {
	const file, pkg = "raftfsm/txn.go", "./raftfsm"
	return []safeguard{
		{
			name: "a transaction is done once", file: file,
			old: "	return s.once(c.Mutation, nil, func() Result {\n",
			new: "	return func(do func() Result) Result { r := do(); _, _, _ = s.Sessions.Begin(c.Mutation); s.Sessions.Finish(c.Mutation, r.Answer); return r }(func() Result {\n",
			pkg: pkg, test: "TestTxnIsAnsweredAgain",
		},
		{
			name: "a condition that does not hold ends a transaction", file: file,
			old: "				return refuseStep(i+1, err)\n", new: "				_ = err\n",
			pkg: pkg, test: "TestTxnIsAllOrNothing",
		},
		{
			name: "a sequencer is a condition of a transaction", file: file,
			old: "	if c.Sequencer != nil {\n", new: "	if false {\n",
			pkg: pkg, test: "TestTxnIsAllOrNothing",
		},
		{
			name: "what a refused transaction has done is taken back", file: file,
			old: "				s.Tree, s.past = tree, past\n", new: "				_, s.past = tree, past\n",
			pkg: pkg, test: "TestTxnIsAllOrNothing",
		},
		{
			name: "what is remembered of a lock comes back with its node", file: file,
			old: "				s.Tree, s.past = tree, past\n", new: "				s.Tree, _ = tree, past\n",
			pkg: pkg, test: "TestTxnIsAllOrNothing",
		},
		{
			name: "a refused transaction names its step", file: file,
			old: "	own.Step = step\n", new: "	_ = step\n",
			pkg: pkg, test: "TestTxnIsAllOrNothing",
		},
		{
			name: "a lock that is held keeps its node in a transaction", file: file,
			old: "	if err := s.Tree.Delete(node.Ref(), namespace.Owner{}); err != nil {\n",
			new: "	holder := namespace.Owner{}\n	for _, h := range node.Holders {\n		holder = h.Owner\n	}\n	if err := s.Tree.Delete(node.Ref(), holder); err != nil {\n",
			pkg: pkg, test: "TestTxnIsAllOrNothing",
		},
		{
			name: "a condition takes the right to look", file: file,
			old: "	if err := s.permitLook(c.Name, principal); err != nil {\n		return err\n	}\n", new: "",
			pkg: pkg, test: "TestTxnTakesRights",
		},
		{
			name: "where there is no node, the directory above has the right to look", file: file,
			old: "	err := s.Tree.Permit(node, principal, namespace.ToRead)\n",
			new: "	if node.Name == \"\" || node.Kind != api.File {\n		return nil\n	}\n	err := s.Tree.Permit(node, principal, namespace.ToRead)\n",
			pkg: pkg, test: "TestTxnTakesRights",
		},
		{
			name: "to write in a transaction takes the right to write", file: file,
			old: "		if err = s.CheckOpen(by, node, &c); err == nil {\n", new: "		if err = checkExisting(node, c.Create, c.Kind); err == nil {\n",
			pkg: pkg, test: "TestTxnTakesRights",
		},
		{
			name: "to delete in a transaction takes the right to write", file: file,
			old: "	if err := s.Tree.Permit(node, s.principal(by), namespace.ToWrite); err != nil {\n		return err\n	}\n", new: "",
			pkg: pkg, test: "TestTxnTakesRights",
		},
		{
			name: "an ephemeral node that is being removed meets no condition", file: file,
			old: "	case there && node.Dying():\n", new: "	case false:\n",
			pkg: pkg, test: "TestTxnAndEphemeralFiles",
		},
		{
			name: "a transaction belongs to its level", file: "raftfsm/command.go",
			old: "`cbor:\"23,keyasint,omitempty\" since:\"3\"`", new: "`cbor:\"23,keyasint,omitempty\" since:\"2\"`",
			pkg: pkg, test: "TestFields",
		},
	}
}

// servedTransactionSafeguards are those of the master.
func servedTransactionSafeguards() []safeguard {
	const file, wire, pkg = "cell/internal/master/txn.go", "cell/internal/wire/txn.go", "./cell"
	return []safeguard{
		{
			name: "a cell below the level refuses a transaction at once", file: file,
			old: "level < raftfsm.TxnLevel {", new: "level < 0 {",
			pkg: pkg, test: "TestTxnBelowItsLevel",
		},
		{
			name: "a transaction waits for caches", file: file,
			old: "t.coherence.applyChange(ctx, c.Mutation, command, namesTouched(names...)...)", new: "t.coherence.applyChange(ctx, c.Mutation, command)",
			pkg: pkg, test: "TestTxnLeavesNothingOldInCaches",
		},
		{
			name: "a transaction waits for the caches of all its files", file: file,
			old: "		names[i] = o.Name\n", new: "		names[i], _ = c.Operations[0].Name, o\n",
			pkg: pkg, test: "TestTxnLeavesNothingOldInCaches",
		},
		{
			name: "a transaction has locks given back that are kept", file: file,
			old: "	t.askBack(ctx, command)\n", new: "",
			pkg: pkg, test: "TestTxnAsksNobodyInVain",
		},
		{
			name: "a transaction that is refused has no lock given back", file: file,
			old: "		answer := state.Try(command)\n		if answer.Code() != api.LockHeld || answer.Refusal.Step <= last {\n",
			new: "		answer := state.Try(raftfsm.Command{Txn: &raftfsm.Txn{Mutation: c.Mutation, Operations: c.Operations[len(c.Operations)-1:]}})\n" +
				"		if answer.Refusal != nil {\n			own := *answer.Refusal\n			own.Step += len(c.Conditions) + len(c.Operations) - 1\n			answer.Refusal = &own\n		}\n		if answer.Code() != api.LockHeld || answer.Refusal.Step <= last {\n",
			pkg: pkg, test: "TestTxnAsksNobodyInVain",
		},
		{
			name: "what transactions write is counted", file: file,
			old: "	if err == nil && len(writing) > 0 {\n", new: "	if false {\n",
			pkg: pkg, test: "TestTxnIsLinted",
		},
		{
			name: "the author's copies of what a transaction deletes are forgotten", file: "cell/internal/master/observer.go",
			old: "		if c.Txn != nil && change.Kind == namespace.Removed {\n", new: "		if false {\n",
			pkg: "./cell/internal/master", test: "TestTxnForgetsCopiesOfWhatItDeletes",
		},
		{
			name: "the answer of a transaction is kept under what it asks for", file: wire,
			old: "q.GetMutation(), txnParts(op, q)...)", new: "q.GetMutation(), txnParts(op, q)[:1]...)",
			pkg: pkg, test: "TestEveryFieldOfATxnIsAskedFor",
		},
		{
			name: "a refused step says nothing of what is there", file: wire,
			old: "		about.named = &master.Named{By: c.Mutation.Session, Path: p}\n", new: "		_ = p\n",
			pkg: pkg, test: "TestTxnTellsNothingWithoutARight",
		},
		{
			name: "a transaction has so many steps at most", file: wire,
			old: "	if len(conditions) > api.MaxTxnSteps || len(operations) > api.MaxTxnSteps {\n", new: "	if false {\n",
			pkg: pkg, test: "TestTxnIsCheckedAtTheDoor",
		},
		{
			name: "a transaction has so many bytes at most", file: wire,
			old: "	if size > api.MaxContents {\n", new: "	if false {\n",
			pkg: pkg, test: "TestTxnIsCheckedAtTheDoor",
		},
		{
			name: "a condition of a transaction demands something", file: wire,
			old: "		if !holdsSomething(c) {\n", new: "		if false {\n",
			pkg: pkg, test: "TestTxnIsCheckedAtTheDoor",
		},
		{
			name: "no two operations of a transaction name one node", file: wire,
			old: "		if named[o.Name] {\n", new: "		if false {\n",
			pkg: pkg, test: "TestTxnIsCheckedAtTheDoor",
		},
		{
			name: "each list that a transaction changes has a line of the audit log", file: "cell/internal/wire/audit.go",
			old: "	for _, list := range listsOf(q) {\n", new: "	for _, list := range listsOf(q)[:1] {\n",
			pkg: pkg, test: "TestTxnIsAudited",
		},
		{
			name: "the audit log names a refused step as the cell does", file: "cell/internal/wire/audit.go",
			old: "		if p, err := api.ParsePath(record.On); err == nil && m != nil {\n", new: "		if p, err := api.ParsePath(record.On); false && err == nil {\n",
			pkg: pkg, test: "TestTxnIsAudited",
		},
		{
			name: "the audit log says what a stranger's transaction was about", file: "cell/internal/wire/audit.go",
			old: "		record.On = cmp.Or(e.Path, subjectOf(request))\n", new: "		record.On = e.Path\n",
			pkg: pkg, test: "TestAuditOfStrangers",
		},
		{
			name: "the name local makes no path longer than others can name", file: "cell/internal/wire/calls.go",
			old: "	if err == nil && path.Cell() != s.cfg.Cell {\n", new: "	if false {\n",
			pkg: pkg, test: "TestAliasMakesNoLongerNames",
		},
	}
}

// sentTransactionSafeguards are those of the client.
func sentTransactionSafeguards() []safeguard {
	const file, pkg = "client/txn.go", "./cell"
	return []safeguard{
		{
			name: "an author's own cache has nothing that its transaction changes", file: file,
			old: "touches: t.touched(), ", new: "touches: t.touched()[:0], ",
			pkg: pkg, test: "TestTxnLeavesNothingOldInCaches",
		},
		{
			name: "a transaction that is committed again has names of its own", file: file,
			old: "	return slices.Compact(slices.Sorted(slices.Values(t.touches)))\n", new: "	slices.Sort(t.touches)\n	return slices.Compact(t.touches)\n",
			pkg: pkg, test: "TestTxnAgainAfterDoubt",
		},
		{
			name: "each condition of a step counts", file: file,
			old: "	for _, one := range conditions { //", new: "	for _, one := range conditions[len(conditions)-1:] { //",
			pkg: pkg, test: "TestTxnKeepsEveryCondition",
		},
		{
			name: "a change of one file takes no second condition of a kind", file: "client/write.go",
			old: "	case o.twice: //", new: "	case false: //",
			pkg: pkg, test: "TestTxnKeepsEveryCondition",
		},
		{
			name: "an older master is asked for a transaction once", file: "client/dialerror.go",
			old: "	if !is || s.Code() != codes.Unimplemented {\n", new: "	if !is || s.Code() != codes.OK {\n",
			pkg: "./client", test: "TestTxnAtAnOlderMaster",
		},
		{
			name: "handles on what a transaction deletes are not used again", file: file,
			old: "		if s.Instance == s.Content { //", new: "		if s.Instance == s.Content && false { //",
			pkg: pkg, test: "TestTxnLeavesNothingOldInCaches",
		},
	}
}
