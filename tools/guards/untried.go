package main

// untriedSafeguards cover items of a work queue whose work does not begin.
func untriedSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a try that has not begun is taken back", file: "client/recipe/item.go",
			old: "	before := i.before\n", new: "	before := *i.record\n",
			pkg: "./client/recipe", test: "TestQueueReturn$",
		},
		{
			name: "an item is as it was before it was taken", file: "client/recipe/taking.go",
			old: "	item.before, item.record = read.itemRecord, &next\n", new: "	item.before, item.record = itemRecord{}, &next\n",
			pkg: "./client/recipe", test: "TestQueueReturnKeepsWhatWasBefore",
		},
		{
			name: "an item is returned by who holds it", file: "client/recipe/itemrecord.go",
			old: "r.with(data), client.IfGeneration(was), client.IfSequencer(l.Sequencer()))", new: "r.with(data))",
			pkg: "./client/recipe", test: "TestQueueReturnIsRefused",
		},
		{
			name: "a try whose CMD was not begun does not count", file: "cmd/chubbyctl/queuetake.go",
			old: "	case errors.As(ran, new(notBegun)):\n", new: "	case false:\n",
			pkg: "./cmd/chubbyctl", test: "TestItemWhoseCommandCannotBeRun",
		},
		{
			name: "an item that does not come to CMD is returned", file: "cmd/chubbyctl/queuetake.go",
			old: "holding(item.Lock(), item.Return)", new: "holding(item.Lock(), item.Abandon)",
			pkg: "./cmd/chubbyctl", test: "TestItemWhoseCommandCannotBeRun",
		},
		{
			name: "a program that cannot be run was not begun", file: "cmd/chubbyctl/command.go",
			old: "	case errors.As(err, new(*supervise.NotRunError)):\n", new: "	case false:\n",
			pkg: "./cmd/chubbyctl", test: "TestCommandThatIsNotBegun",
		},
	}
}
