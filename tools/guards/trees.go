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
			old: "	case unusable(err): // it has gone", new: "	case gone(err): // it has gone",
			pkg: pkg, test: "TestTreeOfWhatGoes",
		},
		{
			name: "files that come and go do not keep a tree from being whole", file: "client/recipe/limb.go",
			old: "	case unusable(err): // it has gone", new: "	case unusable(err) && !gone(err): // it has gone",
			pkg: pkg, test: "TestTreeOfWhatComesAndGoes",
		},
		{
			name: "a file that was written is read again", file: "client/recipe/limb.go",
			old: "	return is.Content == stat.Content && ", new: "	return ",
			pkg: pkg, test: "TestTree$|TestTreeRandom",
		},
		{
			name: "who does not follow a directory any more writes nothing", file: "client/recipe/limb.go",
			old: "		<-l.done\n", new: "",
			pkg: pkg, test: "TestTreeWaitsForWhoIsStopped",
		},
		{
			name: "a tree that lost its lease is not fresh", file: "client/recipe/tree.go",
			old: " && t.c != nil && t.c.Left() > 0", new: " && t.c != nil",
			pkg: pkg, test: "TestTree$",
		},
		{
			name: "what is kept up to date is closed when nothing of it runs", file: "client/recipe/upkeep.go",
			old: "	<-u.stopped\n", new: "",
			pkg: pkg, test: "TestCloseEndsTheSession",
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
