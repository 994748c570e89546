package sequencer

import (
	"context"
	"testing"

	"github.com/chubbylock/chubby/api"
)

type forgetful struct{}

func (forgetful) Load(context.Context) ([]Sequencer, error) { return nil, nil }
func (forgetful) Save(context.Context, Sequencer) error     { return nil }

// A guard keeps one text of each lock, however often locks change hands.
func TestTableDoesNotGrow(t *testing.T) {
	guard, err := NewGuard(t.Context(), GuardConfig{Prefix: api.MustParsePath("/ls/foo"), Store: forgetful{}})
	if err != nil {
		t.Fatal(err)
	}
	for token := range 100 {
		path := api.MustParsePath([]string{"/ls/foo/a", "/ls/foo/b"}[token%2])
		s := Sequencer{Cell: "00112233445566778899aabbccddeeff", Path: path, Mode: api.Exclusive, Generation: api.Generation(token + 1)}
		if _, err := guard.Check(t.Context(), s.String()); err != nil {
			t.Fatal(err)
		}
	}
	if texts, locks := len(*guard.newest.Load()), len(guard.locks); texts != 2 || locks != 2 {
		t.Errorf("%d texts of %d locks", texts, locks)
	}
}
