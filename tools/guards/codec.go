package main

// codecSafeguards cover the commands that are written and read without reflection.
func codecSafeguards() []safeguard {
	return []safeguard{
		{
			name: "an entry with text that is no UTF-8 is damaged", file: "raftfsm/fastdecode.go",
			old: "	d.bad = d.bad || !utf8.Valid(text)\n", new: "	_ = utf8.Valid\n",
			pkg: "./raftfsm", test: "TestFastDecodeOfDamage",
		},
		{
			name: "an entry with a field twice is damaged", file: "raftfsm/fastdecode.go",
			old: "		if key <= last {\n", new: "		if key < last {\n",
			pkg: "./raftfsm", test: "TestFastDecodeOfDamage",
		},
		{
			name: "a number of an entry fits its type", file: "raftfsm/fastdecode.go",
			old: "	d.bad = d.bad || n > math.MaxUint8\n", new: "",
			pkg: "./raftfsm", test: "TestNumbersFitTheirTypes",
		},
		{
			name: "negative durations are written as the codec does", file: "raftfsm/fastencode.go",
			old: "		e.ok = e.ok && c.Delay > 0\n", new: "",
			pkg: "./raftfsm", test: "TestFastCodec",
		},
	}
}
