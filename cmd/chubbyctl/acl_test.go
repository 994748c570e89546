package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

// A list whose text was lost in a pipe must not shut everybody out. The value "-" is standard
// input.
func TestACLFilePutReadsStandardInput(t *testing.T) {
	for _, c := range []struct {
		in   string
		args []string
		code int
	}{
		{"", []string{"acl", "file", "put", "ops"}, 2},
		{"", []string{"acl", "file", "put", "ops", "-"}, 2},
		{"alice #", []string{"acl", "file", "put", "ops"}, 2},
		{"alice #", []string{"acl", "file", "put", "ops", "-"}, 2},
		{"alice\n", []string{"acl", "file", "put", "ops"}, 69},
		{"", []string{"acl", "file", "put", "ops", ""}, 69},
	} {
		if _, err := execute(t, strings.NewReader(c.in), c.args...); exitCode(err) != c.code {
			t.Errorf("%q <%q: %v (exit code %d), want %d", c.args, c.in, err, exitCode(err), c.code)
		}
	}
}

func TestEntries(t *testing.T) {
	most := strings.Repeat("p", api.MaxPrincipal)
	for _, good := range []string{"", "#", "# any text, # and more", "*", "alice", "@ops", "@" + most, most, "a@b.c", "spiffe://x/y#z"} {
		if fault := entryProblem(good); fault != "" {
			t.Errorf("%.40q %s", good, fault)
		}
	}
	for bad, want := range map[string]string{
		" alice": "space", "alice ": "space", " # comment": "space", "alice\r": "carriage return", "a\tb": "control", "# \x1b[2J": "control",
		"\ufeffalice": "invisible", "ali\u200bce": "invisible", "\xff": "UTF-8", "@": "empty", "@ ops": "space", "@a/b": "slash", "@..": "relative",
		most + "p": "at most 255", "@" + most + "p": "at most 255", "alice # admin": "comment", " ": "space", "a b c": "one principal a line",
	} {
		if fault := entryProblem(bad); !strings.Contains(fault, want) {
			t.Errorf("%.40q: %q, want %q", bad, fault, want)
		}
	}
}

func TestAccessLists(t *testing.T) {
	p := api.MustParsePath("/ls/local/acl/ops")
	for text, want := range map[string]string{"alice": "alice\n", "alice\n": "alice\n", "# x\n\n*": "# x\n\n*\n", "": ""} {
		list, err := readAccessList(&globals{}, &cobra.Command{}, []string{text}, p)
		if err != nil || string(list) != want {
			t.Errorf("%q becomes %q, %v", text, list, err)
		}
		if got := admitsAny(list); got != strings.ContainsAny(text, "a*") {
			t.Errorf("%q admits somebody: %t", text, got)
		}
	}
	if err := validateAccessList("alice\n\nbob \n"); err == nil || !strings.Contains(err.Error(), `line 3 of the list, "bob "`) {
		t.Errorf("the line is not named: %v", err)
	}
	if list, err := listPath(&globals{}, "/ls/foo/acl/ops"); err != nil || list.Cell() != "foo" {
		t.Errorf("a list of another cell: %v, %v", list, err)
	}
}

// acl can says why also to a client that may write, or create, and not read.
func TestCanOfWhatMayNotBeRead(t *testing.T) {
	withFollowed(t, func(s *followed) {
		s.put("/ls/local/acl/readers", "author\n")
		s.put("/ls/local/acl/writers", "author\nreader\n")
		acl := api.ACL{Read: "readers", Write: "writers", Change: "readers"}
		h, err := s.author.Open(s.Context(), "/ls/local/f", client.OpenOptions{Write: true, Create: client.NewFile, ACL: acl})
		s.ok(err)
		s.ok(h.Close(s.Context()))
		adapt := s.g.adapt
		s.g.adapt = func(cfg *client.Config) { adapt(cfg); cfg.As = "reader" }
		for _, a := range acts() {
			answer, err := askPermission(s.Context(), s.g, a, api.MustParsePath("/ls/local/f"))
			if answer.Allowed && strings.Contains(answer.Reason, "the list ,") || err != nil {
				t.Errorf("%s: %t, %q, %v", a.word, answer.Allowed, answer.Reason, err)
			}
		}
	})
}
