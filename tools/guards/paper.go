package main

// paperSafeguards cover sentences of the paper that no other list covers.
func paperSafeguards() []safeguard {
	return []safeguard{
		{
			name: "local names every cell", file: "cell/internal/wire/calls.go",
			old: "name == s.cfg.Cell || name == api.LocalCell || name == \"\"", new: "name == s.cfg.Cell || name == \"\"",
			pkg: "./cell/celltest", test: "TestLocalNamesTheCell",
		},
		{
			name: "a handle that closes takes only itself along", file: "namespace/drop.go",
			old: "		gone := func(o Owner) bool { return o == by }\n		var left", new: "		gone := func(o Owner) bool { return true }\n		var left",
			pkg: "./cell/celltest", test: "TestEphemeralFileStaysWhileOpen",
		},
		{
			name: "access control lists keep their place", file: "raftfsm/files.go",
			old: "	if err := s.checkPlace(c); err != nil {\n", new: "	if err := s.checkPlace(c); false {\n",
			pkg: "./raftfsm", test: "TestListsKeepTheirPlace",
		},
	}
}
