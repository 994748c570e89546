package client

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// The certificates and the token for a cell are those of the variables, else of its entry in the file of cells.
func TestIdentityOfACell(t *testing.T) {
	const file = "foo: {servers: [h1], cacert: ca.crt, cert: /c/own.crt, key: own.key}\nbar: {servers: [h2]}\n"
	for name, c := range map[string]struct {
		env   map[string]string
		file  string // "" if there is none
		cell  string
		want  TLSFiles
		token string
		err   string
	}{
		"nowhere":             {cell: "foo"},
		"in the file":         {file: file, cell: "foo", want: TLSFiles{CA: "/etc/chubby/ca.crt", Cert: "/c/own.crt", Key: "/etc/chubby/own.key"}},
		"of another cell":     {file: file, cell: "bar"},
		"of none":             {file: file, cell: "baz"},
		"by variables":        {env: map[string]string{"CHUBBY_CACERT": "a", "CHUBBY_CERT": "b", "CHUBBY_KEY": "c"}, file: file, cell: "foo", want: TLSFiles{CA: "a", Cert: "b", Key: "c"}},
		"by one variable":     {env: map[string]string{"CHUBBY_CACERT": "a"}, file: file, cell: "foo", want: TLSFiles{CA: "a", Cert: "/c/own.crt", Key: "/etc/chubby/own.key"}},
		"a token by variable": {env: map[string]string{"CHUBBY_TOKEN_FILE": "t"}, file: file, cell: "foo", want: TLSFiles{CA: "/etc/chubby/ca.crt"}, token: "t"},
		"a token in the file": {file: "foo: {cacert: ca.crt, token-file: t}\n", cell: "foo", want: TLSFiles{CA: "/etc/chubby/ca.crt"}, token: "/etc/chubby/t"},
		"a token alone":       {file: "foo: {token-file: t}\n", cell: "foo", err: "needed together"},
		"two identities":      {file: "foo: {cacert: ca.crt, cert: c, key: k, token-file: t}\n", cell: "foo", err: "either"},
		"half an entry":       {file: "foo: {servers: [h1], cert: own.crt}\n", cell: "foo", err: "needed together"},
		"a malformed file":    {file: "foo: [", cell: "foo", err: "malformed"},
		"another's own file":  {env: map[string]string{"CHUBBY_CONFIG": "/other/cells.yaml"}, file: file, cell: "foo", want: TLSFiles{CA: "/other/ca.crt", Cert: "/c/own.crt", Key: "/other/own.key"}},
	} {
		s := sources{
			getenv:    func(name string) string { return c.env[name] },
			configDir: func() (string, error) { return "/etc", nil },
			readFile: func(path string) ([]byte, error) {
				if filepath.Base(path) != "cells.yaml" || c.file == "" {
					return nil, fs.ErrNotExist
				}
				return []byte(c.file), nil
			},
		}
		got, err := s.identity(c.cell)
		if got != (identity{c.want, c.token}) || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %+v, %v; want %+v, %q, %q", name, got, err, c.want, c.token, c.err)
		}
	}
}

// Certificates that cannot be used are refused before anything is dialled.
func TestTLSFilesAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		files TLSFiles
		want  string
	}{
		"no authority": {TLSFiles{Cert: "c", Key: "k"}, "name no CA"},
		"no file":      {TLSFiles{CA: filepath.Join(t.TempDir(), "none")}, "no such file"},
	} {
		if _, err := Dial(t.Context(), Config{Servers: []string{"127.0.0.1:1"}, TLS: c.files}); !errors.Is(err, api.InvalidArgument) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
