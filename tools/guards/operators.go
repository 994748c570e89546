package main

// operatorSafeguards are those of operators' rights.
func operatorSafeguards() []safeguard {
	return []safeguard{
		{
			name: "the list operators says who is one", file: "raftfsm/access.go",
			old: "	if !s.Tree.Admits(operatorsACL, principal) {", new: "	if principal == \"\" {",
			pkg: "./cell", test: "TestOperators$",
		},
		{
			name: "below level 3 the list operators means nothing", file: "raftfsm/access.go",
			old: "return there && s.Level >= OperatorsLevel", new: "return there",
			pkg: "./raftfsm", test: "TestOperatorsFromLevelThree",
		},
		{
			name: "the right to the root's ACL breaks no lock", file: "raftfsm/revocation.go",
			old: "err != nil && s.HasOperators() && ", new: "err != nil && ",
			pkg: "./cell/internal/master", test: "TestStrangersNameNoSuccessor",
		},
		{
			name: "operators alone write the lists", file: "raftfsm/state.go",
			old: "		acl = api.ACL{Write: operatorsACL, Change: operatorsACL}\n", new: "",
			pkg: "./cell", test: "TestOperators$",
		},
		{
			name: "operators alone change the ACL of the root", file: "raftfsm/state.go",
			old: "api.ACL{Change: operatorsACL}, nil,", new: "api.ACL{}, nil,",
			pkg: "./cell", test: "TestOperators$",
		},
		{
			name: "a cell that has begun gets no operators", file: "cell/operators.go",
			old: "	if r.fsm.State().Cell != \"\" {\n		return nil, nil\n	}\n	return r.cfg.Operators, nil", new: "	return r.cfg.Operators, nil",
			pkg: "./cell", test: "TestOperatorsAreToldOnce",
		},
		{
			name: "a cell with certificates begins with operators", file: "cmd/chubbyd/settings.go",
			old: "	case named && d.replica.Bootstrap && len(d.replica.Operators) == 0:\n", new: "	case false:\n",
			pkg: "./cmd/chubbyd", test: "TestServeNeedsCertificatesOrInsecure",
		},
	}
}
