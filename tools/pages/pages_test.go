package main

import (
	"slices"
	"strings"
	"testing"
)

// A block that is neither run nor excused is a failure also where nothing can be run.
func TestEveryBlockOfThePagesHasItsPlace(t *testing.T) {
	if _, err := planned("../../docs"); err != nil {
		t.Fatal(err)
	}
}

func TestParsePage(t *testing.T) {
	blocks, err := parsePage("x", "# A\n\n1. in `chubbyd.yaml`:\n\n   ```yaml\n   a: 1\n     b: 2\n   ```\n\n```sh\n# no heading\n```\n\n## B\n\n```text\nc\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []block{
		{page: "x", heading: "A", n: 1, line: 5, lang: "yaml", text: "a: 1\n  b: 2\n", before: "1. in `chubbyd.yaml`:"},
		{page: "x", heading: "A", n: 2, line: 10, lang: "sh", text: "# no heading\n", before: "1. in `chubbyd.yaml`:"},
		{page: "x", heading: "B", n: 1, line: 16, lang: "text", text: "c\n"},
	}
	if !slices.Equal(blocks, want) {
		t.Errorf("got  %+v\nwant %+v", blocks, want)
	}
	if file := blocks[0].fileName(); file != "chubbyd.yaml" {
		t.Errorf("the file of the first is %q", file)
	}
	for _, bad := range []string{"```\nx\n```\n", "a\n\n    make\n", "```sh\nmake\n"} {
		if blocks, err := parsePage("x", bad); err == nil {
			t.Errorf("%q is taken as %+v", bad, blocks)
		}
	}
}

func TestMissing(t *testing.T) {
	const page = "ID  ROLE    OK\nr1  master  yes\nr2  replica  yes\n"
	for _, c := range []struct{ want, got, missing string }{
		{page, "cell main\n\nID  ROLE     OK\nr1  replica  yes\nr2  master   yes\n", ""},
		{page, "ID  ROLE     OK\nr1  replica  NO\nr2  master   yes\n", "r2  replica  yes"},
		{page, "ID ROLE OK\nr1 master yes\nr2 master yes\n", "r2  replica  yes"},
		{"313861 v0.2.0\n", "abcdef devel\n", ""},
		{"time=... msg=\"a\" ...\n", "time=2026-11-25T19:47:24.586Z msg=\"a\" x y\n", ""},
		{"time=... msg=\"a\" ...\n", "time=2026-11-25T19:47:24.586Z msg=\"b\" x y\n", "time=... msg=\"a\" ..."},
		{"restored from /var/chubby-...: 9 nodes\n", "restored from /var/chubby-2026-11-25T1: 12 nodes\n", ""},
		{"a backup of ...: 9 nodes\n", "a backup of 2026-11-25 20:08:54: 12 nodes\n", ""},
		{"world\n", "", "world"},
	} {
		if got := strings.Join(missing(c.want, c.got), "\n"); got != c.missing {
			t.Errorf("of %q in %q is missing %q; want %q", c.want, c.got, got, c.missing)
		}
	}
}

func TestMerge(t *testing.T) {
	if got := merge("a: 1\nm:\n  - x\n  - y\nz: 2\n", "m:\n  - v\n"); got != "a: 1\nz: 2\nm:\n  - v\n" {
		t.Errorf("merged: %q", got)
	}
}
