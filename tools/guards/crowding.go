package main

// crowdingGuards are those of one client that asks for very much at a time.
func crowdingGuards() []guard {
	return []guard{
		{
			name: "few pages of listings are made at a time", file: "cell/listing.go",
			old: "	case m.pages <- struct{}{}:\n		return func() { <-m.pages }, nil\n", new: "	default:\n		return func() {}, nil\n",
			pkg: "./cell", test: "TestFewPagesAreMadeAtATime",
		},
	}
}
