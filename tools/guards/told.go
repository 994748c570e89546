package main

// toldGuards are those of what sessions are told, and of what they may keep.
func toldGuards() []guard {
	return []guard{
		{
			name: "Open for events and the events leave no gap", file: "cell/files.go",
			old: "	if node, err := m.state().Tree.Resolve(h.node); err == nil {\n		s = stat(node, r.path)\n	} else {",
			new: "	if _, err := m.state().Tree.Resolve(h.node); err != nil {",
			pkg: "./cell", test: "TestOpenAndEventsLeaveNoGap",
		},
		{
			name: "Open of a node that goes is told that it went", file: "cell/files.go",
			old: "		m.tellRemoved(h.owner, h.node)\n", new: "",
			pkg: "./cell", test: "TestOpenAndEventsLeaveNoGap",
		},
	}
}
