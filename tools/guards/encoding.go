package main

// encodingSafeguards cover text that cannot be sent or shown, and files that have changed.
func encodingSafeguards() []safeguard {
	return []safeguard{
		{
			name: "text that is no UTF-8 is refused", file: "client/utf8.go",
			old: "status.Code(err) != codes.Internal {", new: "status.Code(err) == codes.Internal {",
			pkg: "./client", test: "TestTextThatIsNoUTF8",
		},
		{
			name: "an Acquire whose text is no UTF-8 is refused", file: "client/channel.go",
			old: "	return textStream{stream}, nil\n", new: "	return stream, nil\n",
			pkg: "./client", test: "TestTextThatIsNoUTF8",
		},
		{
			name: "programs are shown values that are no text", file: "cmd/chubbyctl/elect.go",
			old: "	f.Value, f.ValueBase64 = valueFields(c.Value)\n", new: "	f.Value = string(c.Value)\n",
			pkg: "./cmd/chubbyctl", test: "TestValueThatIsNoText",
		},
		{
			name: "put --ephemeral does not outlive its file", file: "cmd/chubbyctl/ephemeral.go",
			old: "	return awaitEnd(ctx, h)\n", new: "	<-ctx.Done()\n	return nil\n",
			pkg: "./cmd/chubbyctl", test: "TestEphemeralFileIsGone",
		},
		{
			name: "the sequencer file is looked at again when the lock is held", file: "cmd/chubbyctl/sequencerfile.go",
			old: "	if err := checkSequencerFile(o.sequencerFile); err != nil {\n		return nil, err\n	}\n", new: "",
			pkg: "./cmd/chubbyctl", test: "TestSequencerFileIsNobodyElses",
		},
		{
			name: "a configuration is one document", file: "cmd/chubbyd/file.go",
			old: "	case errors.Is(err, io.EOF):\n", new: "	case err == nil || errors.Is(err, io.EOF):\n",
			pkg: "./cmd/chubbyd", test: "TestSecondDocument",
		},
		{
			name: "no election replaces an access control list", file: "cmd/chubbyctl/elect.go",
			old: "	case isList(o.path): ", new: "	case o.path.IsZero(): ",
			pkg: "./cmd/chubbyctl", test: "TestCommandLineFaults",
		},
	}
}
