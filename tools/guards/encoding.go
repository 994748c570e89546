package main

// encodingGuards are those of text that cannot be sent.
func encodingGuards() []guard {
	return []guard{
		{
			name: "text that is no UTF-8 is refused", file: "client/utf8.go",
			old: "status.Code(err) != codes.Internal {", new: "status.Code(err) == codes.Internal {",
			pkg: "./client", test: "TestTextThatIsNoUTF8",
		},
		{
			name: "an Acquire whose text is no UTF-8 is refused", file: "client/utf8.go",
			old: "	return textStream{stream}, nil\n", new: "	return stream, nil\n",
			pkg: "./client", test: "TestTextThatIsNoUTF8",
		},
	}
}
