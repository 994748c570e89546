package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
	"github.com/chubbylock/chubby/client"
)

func TestQuotaFaults(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		text string
	}{
		{"quota", 2, "needs one of the commands"},
		{"quota ls a/b", 2, "not a cell's name"},
		{"quota ls", 69, ""},
		{"quota set --nodes 3", 2, "--principal or --dir"},
		{"quota set --principal ci --dir /ls/local/a --nodes 3", 2, "one of them"},
		{"quota set --principal ci", 2, "which amount?"},
		{"quota set --principal= --nodes 3", 2, "1 to 255"},
		{"quota set --principal ci --nodes -1", 2, "negative"},
		{"quota set --principal ci --nodes x", 2, "--nodes"},
		{"quota set --principal ci --bytes 10MB", 2, "10MiB"},
		{"quota set --dir ./a --nodes 3", 2, "relative"},
		{"quota set --dir= --nodes 3", 2, "path"},
		{"quota set --dir /ls/local/a --handles 3", 2, "nodes and bytes only"},
		{"quota set foo --dir /ls/local/a --nodes 3", 2, "names its cell"},
		{"quota set a/b --principal ci --nodes 3", 2, "not a cell's name"},
		{"quota set foo --principal ci --nodes 0", 69, ""},
		{"quota set --dir /ls/local/a --bytes 1GiB", 69, ""},
	} {
		_, err := execute(t, nil, strings.Fields(c.args)...)
		if exitCode(err) != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v (exit code %d), want %d with %q", c.args, err, exitCode(err), c.code, c.text)
		}
	}
}

func TestPrintQuotas(t *testing.T) {
	quotas := []client.QuotaUse{
		{Principal: "ann", Used: api.Quota{Nodes: 12, Bytes: 1536, Sessions: 3, Handles: 4, Waiters: 5}, Allowed: api.DefaultQuota()},
		{Path: "/ls/foo/scratch", Used: api.Quota{Nodes: 2}, Allowed: api.Quota{Bytes: 10 << 20}},
	}
	var b bytes.Buffer
	if err := printQuotas("text", &b, quotas); err != nil {
		t.Fatal(err)
	}
	want := `PRINCIPAL OR DIRECTORY  NODES       BYTES        SESSIONS  HANDLES    WAITERS
ann                     12/500000   1.5KiB/1GiB  3/200000  4/1000000  5/200000
/ls/foo/scratch         2/no limit  0B/10MiB     -         -          -
`
	if b.String() != want {
		t.Errorf("printed\n%s", b.String())
	}
	b.Reset()
	if err := printQuotas("json", &b, quotas[1:]); err != nil {
		t.Fatal(err)
	}
	want = `{"principal":"","path":"/ls/foo/scratch","used":{"nodes":2,"bytes":0,"sessions":0,"handles":0,"waiters":0},` +
		`"allowed":{"nodes":0,"bytes":10485760,"sessions":0,"handles":0,"waiters":0}}` + "\n"
	if b.String() != want {
		t.Errorf("printed\n%s", b.String())
	}
}

func TestPrintWhatWasSet(t *testing.T) {
	principal := &quotaSetOptions{globals: &globals{output: "text"}, principal: "ci", quota: api.Quota{Nodes: 7, Bytes: 64 << 20}, bytes: 64 << 20}
	directory := &quotaSetOptions{globals: &globals{output: "text"}, path: api.MustParsePath("/ls/foo/d"), quota: api.Quota{Nodes: 7}}
	for want, o := range map[string]*quotaSetOptions{
		"quota of ci: nodes 7, bytes 64MiB, sessions default, handles default, waiters default\n": principal,
		"quota of /ls/foo/d: nodes 7, bytes no limit\n":                                           directory,
	} {
		var b bytes.Buffer
		if err := o.printSet(&b); err != nil || b.String() != want {
			t.Errorf("printed %q, %v", b.String(), err)
		}
		b.Reset()
		o.globals = &globals{output: "json"}
		if err := o.printSet(&b); err != nil {
			t.Fatal(err)
		}
		mustHave(t, b.Bytes(), "principal path quota quota.nodes quota.bytes quota.sessions quota.handles quota.waiters")
	}
}

// Quotas are for operators, as the help says: the right to change the ACL of the root is another.
func TestOperatorsSetQuotas(t *testing.T) {
	withFollowed(t, func(s *followed) {
		as := func(name string) *client.Client {
			return s.cell.Client(name, func(cfg *client.Config) { cfg.NoCache, cfg.As = true, name })
		}
		s.put("/ls/local/acl/rooters", "rooter\nauthor\n")
		root, err := s.author.Open(s.Context(), "/ls/local", client.OpenOptions{ChangeACL: true})
		s.ok(err)
		_, err = root.SetACL(s.Context(), api.ACL{Change: "rooters"})
		s.ok(err)
		s.ok(root.Close(s.Context()))
		s.put("/ls/local/acl/operators", "ops\n")
		if err := as("rooter").SetPrincipalQuota(s.Context(), "ci", api.Quota{Nodes: 10}); api.CodeOf(err) != api.PermissionDenied {
			t.Errorf("a principal that may change the ACL of the root: %v", err)
		}
		s.ok(as("ops").SetPrincipalQuota(s.Context(), "ci", api.Quota{Nodes: 10}))
	})
	help, err := execute(t, nil, "quota", "set", "--help")
	if err != nil || !strings.Contains(help, "It is for operators of the cell") {
		t.Errorf("%v: %s", err, help)
	}
}
