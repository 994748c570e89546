package main

// transactionSafeguards cover changes of several files in one step.
func transactionSafeguards() []safeguard {
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
