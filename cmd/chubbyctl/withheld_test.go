package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/chubbylock/chubby/api"
)

// Of a node that its reader may not read, what is withheld is absent from the output: no zero stands for it.
func TestWithheldMetadataIsAbsent(t *testing.T) {
	s := api.Stat{Path: api.MustParsePath("/ls/local/pin"), Kind: api.File, Withheld: true}
	encode := func() string {
		text, err := json.Marshal(newStatFields(s))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got, want := encode(), `{"path":"/ls/local/pin","kind":"file","ephemeral":false,"withheld":true}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var out bytes.Buffer
	g := &globals{}
	if err := g.printList(&out, []api.Stat{s}, true); err != nil {
		t.Fatal(err)
	}
	if row := strings.Fields(strings.Split(out.String(), "\n")[1]); strings.Join(row, " ") != "file - - - - pin" {
		t.Errorf("ls -l says %q", out.String())
	}
	s.Content = 7 // it has just written it
	if got, want := encode(), `{"path":"/ls/local/pin","kind":"file","ephemeral":false,"withheld":true,"content_generation":7,"checksum":"0000000000000000","size":0}`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
