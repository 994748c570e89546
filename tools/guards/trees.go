package main

// treeSafeguards cover what is kept of a directory and everything below it.
func treeSafeguards() []safeguard {
	const pkg = "./client/recipe"
	return []safeguard{
		{
			name: "a directory that is made again, or has other rights, is looked at again", file: "client/recipe/limb.go",
			old: " || stat.ACLs != below.stat.ACLs {", new: " {",
			pkg: pkg, test: "TestTree$|TestTreeOfStrangers",
		},
		{
			name: "a file that becomes a directory while it is read does not end a tree", file: "client/recipe/limb.go",
			old: "	case unusable(err):\n		err = &api.Error{", new: "	case false:\n		err = &api.Error{",
			pkg: pkg, test: "TestTreeOfWhatGoes",
		},
		{
			name: "a directory that may not be read holds up no other", file: "client/recipe/limb.go",
			old: "		case errors.Is(err, api.PermissionDenied):\n			l.refused(ctx, err)\n", new: "",
			pkg: pkg, test: "TestTreeOfStrangers",
		},
		{
			name: "a tree keeps no ephemeral directory from going", file: "client/recipe/limb.go",
			old: "	if stat.Ephemeral {\n", new: "	if false {\n",
			pkg: pkg, test: "TestTreeKeepsNothing",
		},
		{
			name: "a tree is bounded", file: "client/recipe/tree.go",
			old: "	if nodes <= t.o.MaxNodes && bytes <= t.o.MaxBytes {\n", new: "	if true {\n",
			pkg: pkg, test: "TestTreeTooLarge",
		},
		{
			name: "a tree is whole before it is had", file: "client/recipe/limb.go",
			old: "	if l.t.behind > 0 {\n", new: "	if false {\n",
			pkg: pkg, test: "TestTreeTooLarge",
		},
	}
}
