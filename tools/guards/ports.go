package main

// portSafeguards cover the ports of processes that tests start.
func portSafeguards() []safeguard {
	return []safeguard{
		{
			name: "no two programs that look at the same time have the same ports", file: "internal/ports/ports.go",
			old: "		if r := (&Range{base: at + 1, mark: mark}); r.free() {\n", new: "		_ = mark.Close()\n		if r := (&Range{base: at + 1, mark: mark}); r.free() {\n",
			pkg: "./internal/ports", test: "TestNoTwoHaveTheSamePorts",
		},
		{
			name: "ports on which somebody listens are not given away", file: "internal/ports/ports.go",
			old: "mark: mark}); r.free() {\n", new: "mark: mark}); r != nil {\n",
			pkg: "./internal/ports", test: "TestPortsInUseAreLeftOut",
		},
	}
}
